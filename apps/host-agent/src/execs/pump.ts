/**
 * From the guest's frame stream into the spool, until the exit frame. A conversation that is cut is followed by another from where the
 * spool stands, for as long as the VM may still answer.
 */
import { AppError, FrameError } from '@fuse/contract';
import type { ExecSpec, GuestExecExit } from '@fuse/host-protocol';
import type { ObjectStore } from '@fuse/object-store';
import { type Logger, sleep } from '@fuse/runtime';
import type { ExecConversation, Guest } from '../guest/guest.ts';
import type { FrameSpool } from './frame-spool.ts';
import { feedStdin, StdinSourceError } from './stdin-feed.ts';

/** The guest keeps what no ack covers (at most its window of 1 MiB), so acks need not be frequent. */
const ACK_EVERY_BYTES = 128 * 1024;
const FIRST_RETRY_MS = 20;
const LONGEST_RETRY_MS = 1_000;

export interface PumpParts {
  execId: string;
  spool: FrameSpool;
  store: ObjectStore;
  log: Logger;
  stdinObjectKey: string | undefined;
  guest: () => Guest;
  /** Present while it is not known whether the guest has started the command. */
  pendingSpec: () => ExecSpec | undefined;
  /** The guest has confirmed the start. */
  onStarted: () => void;
}

/** What the spool could not write. Nothing that a new conversation would mend. */
class SpoolError extends Error {
  override readonly name = 'SpoolError';
}

/** Throws the signal's reason once it aborts; any other error is final. */
export async function pump(parts: PumpParts, signal: AbortSignal): Promise<GuestExecExit> {
  let retryMs = FIRST_RETRY_MS;
  for (;;) {
    const before = parts.spool.guestOffset;
    try {
      return await converse(parts, signal);
    } catch (error) {
      signal.throwIfAborted();
      if (isFinal(error)) throw error;
      parts.log.debug({ err: error, exec_id: parts.execId }, 'exec conversation cut');
    }
    retryMs = parts.spool.guestOffset > before ? FIRST_RETRY_MS : Math.min(2 * retryMs, LONGEST_RETRY_MS);
    await sleep(retryMs, signal).catch(() => {});
    signal.throwIfAborted();
  }
}

/** Whether asking the guest again could have no other result: it has answered, or what failed is not the channel. */
function isFinal(error: unknown): boolean {
  if (error instanceof AppError) return !['unavailable', 'vm_lost', 'deadline_exceeded'].includes(error.code);
  return error instanceof FrameError || error instanceof StdinSourceError || error instanceof SpoolError;
}

async function converse(parts: PumpParts, signal: AbortSignal): Promise<GuestExecExit> {
  const { spool, execId } = parts;
  const guest = parts.guest();
  const spec = parts.pendingSpec();
  let stdinFrom = 0;
  let offset = 0;
  if (spec === undefined) {
    const status = await guest.execStatus(execId, signal);
    offset = spool.resumeAt(status.offset_acked);
    stdinFrom = status.stdin_closed ? Number.POSITIVE_INFINITY : status.stdin_bytes;
  }
  const conversation = await guest.exec(execId, { ...(spec === undefined ? {} : { spec }), offset }, signal);
  parts.onStarted();
  const stopFeeding = new AbortController();
  const feeding = feed(parts, conversation, stdinFrom, stopFeeding.signal);
  const close = () => conversation.close();
  signal.addEventListener('abort', close, { once: true });
  try {
    signal.throwIfAborted();
    return await Promise.race([receive(conversation, spool), feeding.failed]);
  } finally {
    signal.removeEventListener('abort', close);
    stopFeeding.abort();
    conversation.close();
    await feeding.settled;
  }
}

async function receive(conversation: ExecConversation, spool: FrameSpool): Promise<GuestExecExit> {
  let ackedOffset = spool.guestOffset;
  for await (const chunk of conversation.frames) {
    const exit = await spool.take(chunk).catch((error: unknown) => {
      if (error instanceof FrameError) throw error;
      throw new SpoolError('the log could not be written', { cause: error });
    });
    if (exit !== undefined || spool.guestOffset - ackedOffset >= ACK_EVERY_BYTES) {
      ackedOffset = spool.guestOffset;
      conversation.ack(ackedOffset);
    }
    if (exit !== undefined) return exit;
  }
  throw new Error('the frame stream ended without an exit frame');
}

/** `failed` rejects only when stdin itself cannot be read; that a conversation is over shows in its frames. */
function feed(
  parts: PumpParts,
  conversation: ExecConversation,
  fromByte: number,
  signal: AbortSignal,
): { failed: Promise<never>; settled: Promise<void> } {
  const key = parts.stdinObjectKey;
  if (key === undefined || fromByte === Number.POSITIVE_INFINITY)
    return { failed: new Promise(() => {}), settled: Promise.resolve() };
  let reject: (error: unknown) => void = () => {};
  const failed = new Promise<never>((_, no) => {
    reject = no;
  });
  failed.catch(() => {});
  const settled = feedStdin({ store: parts.store, key, fromByte }, conversation, signal).catch((error: unknown) => {
    if (error instanceof StdinSourceError && !signal.aborted) reject(error);
  });
  return { failed, settled };
}

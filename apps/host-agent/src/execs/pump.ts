/**
 * From the guest's frame stream into the spool, until the exit frame. A conversation that is cut is followed by another from where the
 * spool stands, for as long as the VM may still answer.
 */
import { AppError, FrameError } from '@fuse/contract';
import type { ExecSpec, GuestExecExit } from '@fuse/host-protocol';
import type { ObjectStore } from '@fuse/object-store';
import { type Logger, sleep } from '@fuse/runtime';
import type { ExecConversation, Guest } from '../guest/guest.ts';
import { rejection } from './rejection.ts';
import { type Spool, SpoolError } from './spool.ts';
import { feedStdin, StdinSourceError } from './stdin-feed.ts';

/** The guest keeps what no ack covers (at most its window of 1 MiB), so acks need not be frequent. */
const ACK_EVERY_BYTES = 128 * 1024;
const FIRST_RETRY_MS = 20;
const LONGEST_RETRY_MS = 1_000;

export interface PumpParts {
  /** As the guest knows it. */
  execId: string;
  spool: Spool;
  store: ObjectStore;
  log: Logger;
  stdinObjectKey: string | undefined;
  /** Waits while the VM is paused. */
  guest: (signal: AbortSignal) => Promise<Guest>;
  /** Present while it is not known whether the guest has started the command. */
  pendingSpec: () => ExecSpec | undefined;
  /** The guest has confirmed the start. */
  onStarted: () => void;
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
  const guest = await parts.guest(signal);
  // Output in the log is a confirmation too: an earlier host agent may have been killed between the two.
  const spec = spool.begun ? undefined : parts.pendingSpec();
  let stdinFrom = 0;
  let offset = 0;
  if (spec === undefined) {
    const status = await guest.execStatus(execId, signal);
    offset = await spool.resumeAt(status.offset_acked);
    // It has ended and the guest keeps no more of its stream, not even the exit frame.
    if (status.exit !== undefined && offset >= status.offset_end) return spool.takeExit(status.exit);
    stdinFrom = status.stdin_closed ? Number.POSITIVE_INFINITY : status.stdin_bytes;
  }
  const conversation = await guest.exec(execId, { ...(spec === undefined ? {} : { spec }), offset }, signal);
  parts.onStarted();
  const stopped = rejection(signal);
  const stopFeeding = new AbortController();
  const feeding = feed(parts, conversation, stdinFrom, stopFeeding.signal);
  try {
    return await Promise.race([receive(conversation, spool, signal), feeding.failed, stopped.promise]);
  } finally {
    stopped.forget();
    stopFeeding.abort(new Error('the conversation is over'));
    conversation.close();
    await feeding.settled;
  }
}

async function receive(conversation: ExecConversation, spool: Spool, signal: AbortSignal): Promise<GuestExecExit> {
  let ackedOffset = spool.guestOffset;
  for await (const chunk of conversation.frames) {
    signal.throwIfAborted();
    const exit = await spool.take(chunk, signal);
    if (exit !== undefined) return exit;
    if (spool.guestOffset - ackedOffset < ACK_EVERY_BYTES) continue;
    ackedOffset = spool.guestOffset;
    conversation.ack(ackedOffset);
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
  let fail: (error: unknown) => void = () => {};
  const failed = new Promise<never>((_, reject) => {
    fail = reject;
  });
  failed.catch(() => {});
  const settled = feedStdin({ store: parts.store, key, fromByte }, conversation, signal).catch((error: unknown) => {
    if (error instanceof StdinSourceError && !signal.aborted) fail(error);
  });
  return { failed, settled };
}

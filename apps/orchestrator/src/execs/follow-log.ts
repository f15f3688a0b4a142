/**
 * A command's log, whole frames with the offset behind each, to its end whatever becomes of the connections on the way: a host agent that restarts is asked again at the
 * offset that was reached; when the environment is destroyed meanwhile the archive goes on there. Nothing comes twice, nothing is missing but what is told as a gap.
 */
import {
  AppError,
  FRAME_HEADER_BYTES,
  type Frame,
  FrameError,
  FrameParser,
  frameType,
  HEARTBEAT_MS,
  invalidField,
} from '@fuse/contract';
import { GuestExecExit } from '@fuse/host-protocol';
import { sleep } from '@fuse/runtime';
import { z } from 'zod';
import type { LogStart } from '../hosts/host-execs.ts';
import { isHostUnreachable } from '../hosts/host-transport.ts';
import type { ExecReads, FoundExec } from './exec-reads.ts';
import type { OpenLog } from './exec-source.ts';

/** A host that is well says something at least every HEARTBEAT_MS. */
const SILENT_MS = 3 * HEARTBEAT_MS;
/** How long a host agent may be away. */
const HOST_AWAY_MS = 60_000;
const LOOK_AGAIN_MS = 250;

/** `offset`: of the log, behind it. `lost`: no exit will come. */
export type LogEvent =
  | { kind: 'data'; stream: 'stdout' | 'stderr'; payload: Uint8Array; offset: number }
  | { kind: 'gap'; from: number; to: number; offset: number }
  | { kind: 'exit'; exit: GuestExecExit; payload: Uint8Array; offset: number }
  | { kind: 'lost'; error: string; offset: number };

export interface FollowOptions {
  from: LogStart;
  follow: boolean;
  signal: AbortSignal;
}

export interface FollowedLog {
  /** Where it begins. */
  offset: number;
  events: AsyncGenerator<LogEvent>;
}

const Gap = z.object({ from: z.number().int().nonnegative(), to: z.number().int().nonnegative() });

/** Resolves once it is open. An offset that no frame begins at is refused. */
export async function followLog(reads: ExecReads, found: FoundExec, options: FollowOptions): Promise<FollowedLog> {
  const { from, signal } = options;
  const isWithin = 'offset' in from && from.offset > 0;
  if (isWithin && from.offset > found.exec.log_bytes)
    throw invalidField('offset', `is beyond the ${found.exec.log_bytes} bytes that the log has`);
  const first = await found.source.log(found.exec.id, options);
  const events = allEvents(reads, found, first, options);
  if (!isWithin || from.offset === found.exec.log_bytes) return { offset: first.offset, events };
  // Something is there: what begins with no frame is told before anything is sent.
  try {
    const next = await events.next();
    return { offset: first.offset, events: next.done === true ? events : startingWith(next.value, events) };
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof UnreadableLog) throw invalidField('offset', 'no frame of the log begins there');
    throw error;
  }
}

/** A host's frames that are none: of a bad offset, or its own fault. */
class UnreadableLog extends Error {
  override readonly name = 'UnreadableLog';
}

async function* startingWith(first: LogEvent, rest: AsyncGenerator<LogEvent>): AsyncGenerator<LogEvent> {
  try {
    yield first;
    yield* rest;
  } finally {
    await rest.return(undefined);
  }
}

async function* allEvents(
  reads: ExecReads,
  found: FoundExec,
  first: OpenLog,
  { follow, signal }: FollowOptions,
): AsyncGenerator<LogEvent> {
  let log: OpenLog | undefined = first;
  let { offset } = first;
  let place = found;
  /** Not following, what was there at first is what is wanted. */
  const until = follow ? Number.POSITIVE_INFINITY : found.exec.log_bytes;
  for (;;) {
    const openedAt = performance.now();
    if (log !== undefined) {
      try {
        for await (const event of eventsOf(log, offset, signal)) {
          offset = event.offset;
          yield event;
          if (event.kind === 'exit') return;
        }
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof UnreadableLog) throw error;
        // Cut: what became of it is asked.
      } finally {
        log.destroy();
      }
    }
    place = await untilAnswered(signal, () => reads.findAgain(place, signal)).catch((error: unknown) => {
      if (error instanceof AppError && error.code === 'vm_lost')
        return { ...place, exec: { ...place.exec, state: 'lost' as const, error: error.message, log_bytes: offset } };
      throw error;
    });
    const { exec } = place;
    if (offset >= exec.log_bytes) {
      if (exec.state === 'lost') {
        await reads.noteLoss(place.row, exec.error);
        return yield { kind: 'lost', error: exec.error ?? 'the end of the command is not known', offset };
      }
      // Not kept as a frame, it is known all the same.
      if (exec.state === 'exited' && exec.exit !== undefined) {
        const payload = Buffer.from(JSON.stringify(exec.exit));
        return yield { kind: 'exit', exit: exec.exit, payload, offset };
      }
    }
    if (!follow && offset >= until) return;
    // One that is cut again and again is not opened in a busy loop.
    if (performance.now() - openedAt < LOOK_AGAIN_MS) await sleep(LOOK_AGAIN_MS, signal);
    const at = offset;
    log = await untilAnswered(signal, () =>
      place.source.log(exec.id, { from: { offset: at }, follow: follow && exec.state === 'running', signal }),
    ).catch((error: unknown) => {
      if (error instanceof AppError && (error.code === 'not_found' || error.code === 'vm_lost')) return undefined;
      throw error;
    });
  }
}

async function untilAnswered<T>(signal: AbortSignal, call: () => Promise<T>): Promise<T> {
  const giveUpAt = performance.now() + HOST_AWAY_MS;
  for (;;) {
    try {
      return await call();
    } catch (error) {
      signal.throwIfAborted();
      if (!isHostUnreachable(error) || performance.now() > giveUpAt) throw error;
      await sleep(LOOK_AGAIN_MS, signal);
    }
  }
}

/** Throws when the stream was cut in the middle of a frame, or says nothing any more. */
async function* eventsOf(log: OpenLog, from: number, signal: AbortSignal): AsyncGenerator<LogEvent> {
  let offset = from;
  const parser = new FrameParser();
  for await (const bytes of whileTalking(log)) {
    signal.throwIfAborted();
    for (const frame of framesOf(parser, bytes)) {
      if (frame.type === frameType.heartbeat) continue;
      const event = toEvent(frame, offset);
      offset = event.offset;
      yield event;
    }
  }
  if (parser.pendingBytes > 0) throw new Error('the log was cut in the middle of a frame');
}

function* framesOf(parser: FrameParser, bytes: Uint8Array): Generator<Frame> {
  try {
    yield* parser.push(bytes);
  } catch (error) {
    if (error instanceof FrameError) throw new UnreadableLog(error.message, { cause: error });
    throw error;
  }
}

function toEvent({ type, payload }: Frame, before: number): LogEvent {
  const offset = before + FRAME_HEADER_BYTES + payload.length;
  try {
    switch (type) {
      case frameType.stdout:
        return { kind: 'data', stream: 'stdout', payload, offset };
      case frameType.stderr:
        return { kind: 'data', stream: 'stderr', payload, offset };
      case frameType.gap: {
        const { from, to } = Gap.parse(parse(payload));
        return { kind: 'gap', from, to, offset: to };
      }
      case frameType.exit:
        return { kind: 'exit', exit: GuestExecExit.parse(parse(payload)), payload, offset };
    }
  } catch (error) {
    throw new UnreadableLog('a frame of the log cannot be read', { cause: error });
  }
  throw new UnreadableLog(`the log has a frame of type ${type}`);
}

const parse = (payload: Uint8Array): unknown => JSON.parse(Buffer.from(payload).toString('utf8'));

/** Time counts only while we wait: a reader that is slow is none of the host's doing. */
async function* whileTalking({ body, destroy }: OpenLog): AsyncGenerator<Uint8Array> {
  const chunks = body[Symbol.asyncIterator]();
  let waitingSince = Number.POSITIVE_INFINITY;
  const watch = setInterval(() => {
    if (performance.now() - waitingSince > SILENT_MS) destroy();
  }, HEARTBEAT_MS);
  try {
    for (;;) {
      waitingSince = performance.now();
      const next = await chunks.next();
      waitingSince = Number.POSITIVE_INFINITY;
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    clearInterval(watch);
    await chunks.return?.();
  }
}

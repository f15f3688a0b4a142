/**
 * The log of an exec as items, from a stream of frames. Lost connections are made again at the offset of the first frame that has not been handed over:
 * no gap, no repeat. An end without the exit frame is a cut, never an end.
 */
import { ExecExit, FRAME_HEADER_BYTES, type Frame, FrameParser, frameType } from '@fuse/contract';
import { z } from 'zod';
import { CutStreamError, FuseConnectionError, FuseError, FuseExecLostError } from './errors.ts';
import { type ExecRef, execPath, getExec } from './exec-calls.ts';
import { persist } from './persist.ts';
import { isPassing } from './retry.ts';
import type { CallOptions } from './run-outputs.ts';
import { STALL_MS, within } from './sleep.ts';
import type { Transport } from './transport.ts';

export const LogGap = z.object({ from: z.number().int().nonnegative(), to: z.number().int().nonnegative() });

/** `next` is the offset of what follows: `offset` of another `log` call goes on there. */
export type ExecLogItem =
  | { type: 'stdout' | 'stderr'; data: Uint8Array; next: number }
  /** These bytes of the log are not kept any more. */
  | { type: 'gap'; from: number; to: number; next: number }
  | { type: 'exit'; exit: ExecExit; next: number };

export interface LogPosition {
  /** From this byte of the log on. Default: 0. */
  offset?: number;
  /** From a frame at most so many bytes before its end, instead. */
  tail?: number;
}

export interface FollowOptions extends CallOptions {
  /** How long to try to get further after a cut. Default 60 s. */
  patienceMs?: number;
}

export interface LogOptions extends LogPosition, FollowOptions {
  /** Go on to the exec's end. Default false: what is there now. */
  follow?: boolean;
}

export function execLog(
  transport: Transport,
  exec: ExecRef,
  /** `begun`: an answer that carries the log from its beginning. */
  options: LogOptions & { begun?: Response; stallMs?: number } = {},
): AsyncGenerator<ExecLogItem, void> {
  const { follow = false, stallMs = STALL_MS } = options;
  let { begun } = options;
  /** Of the first frame that has not been handed over; undefined until a log by its tail says where it begins. */
  let next = options.tail === undefined ? (options.offset ?? 0) : undefined;

  const open = (signal: AbortSignal) =>
    transport.open({
      method: 'GET',
      path: `${execPath(exec)}/log`,
      query: {
        stream: 'frames',
        follow: follow ? '1' : undefined,
        ...(next === undefined ? { tail: String(options.tail) } : { offset: String(next) }),
      },
      repeat: 'never',
      timeoutMs: null,
      signal,
    });

  /** Frames of one connection; true when the last one was the exit. */
  async function* framesAsItems(response: Response, signal: AbortSignal): AsyncGenerator<ExecLogItem, boolean> {
    if (response.body === null) throw new FuseError('a log without a body');
    const beginsAt = Number(response.headers.get('fuse-log-offset') ?? next ?? Number.NaN);
    if (!Number.isSafeInteger(beginsAt)) throw new FuseError('a log that does not say where it begins');
    next ??= beginsAt;
    let at = beginsAt;
    for await (const { type, payload } of framesOf(response.body, stallMs, signal)) {
      if (type === frameType.heartbeat || type === frameType.open) continue;
      const end = type === frameType.gap ? parsePayload(LogGap, payload).to : at + FRAME_HEADER_BYTES + payload.length;
      const from = type === frameType.gap ? end : at;
      if (from > next) {
        yield { type: 'gap', from: next, to: from, next: from };
        next = from;
      }
      at = end;
      if (end <= next) continue;
      next = end;
      if (type === frameType.stdout) yield { type: 'stdout', data: payload, next };
      else if (type === frameType.stderr) yield { type: 'stderr', data: payload, next };
      else if (type === frameType.exit) {
        yield { type: 'exit', exit: parsePayload(ExecExit, payload), next };
        return true;
      }
    }
    return false;
  }

  async function* connection(signal: AbortSignal): AsyncGenerator<ExecLogItem, boolean> {
    const response = begun ?? (await within(stallMs, open(signal)));
    begun = undefined;
    let cut: unknown;
    try {
      if (yield* framesAsItems(response, signal)) return true;
      if (!follow) return true;
    } catch (error) {
      if (signal.aborted || (error instanceof FuseError && !isPassing(error))) throw error;
      cut = error;
    }
    // Cut, which is also how the log of a lost exec ends.
    const now = await getExec(transport, exec, { signal });
    const isWhole = next !== undefined && now.log_end <= next;
    if (now.state === 'lost' && isWhole) {
      if (!follow) return true;
      throw new FuseExecLostError(exec.execId, now.error ?? 'its VM was lost');
    }
    if (cut === undefined && now.exit !== undefined && isWhole) {
      yield { type: 'exit', exit: now.exit, next: now.log_end };
      return true;
    }
    if (cut !== undefined) throw cut;
    return false;
  }

  return persist(connection, {
    random: transport.config.random,
    signal: options.signal,
    patienceMs: options.patienceMs,
    onCut: (cause) => new CutStreamError(exec.execId, next === undefined ? undefined : String(next), cause),
  });
}

/** Whole frames; a body that ends inside of one was cut. */
export async function* framesOf(
  body: ReadableStream<Uint8Array>,
  stallMs: number,
  signal?: AbortSignal,
): AsyncGenerator<Frame> {
  const parser = new FrameParser();
  const reader = body.getReader();
  // A body whose request was made under another signal, or none.
  const abort = () => void reader.cancel(signal?.reason).catch(() => {}); // it may be broken already
  signal?.addEventListener('abort', abort, { once: true });
  if (signal?.aborted) abort();
  try {
    for (;;) {
      const { done, value } = await within(stallMs, reader.read());
      if (done) break;
      yield* parser.push(value);
    }
    if (parser.pendingBytes > 0) throw new FuseConnectionError('the log was cut inside of a frame', { sent: true });
  } finally {
    signal?.removeEventListener('abort', abort);
    // What is still to come is nobody's; a reader that fails to cancel was broken already.
    await reader.cancel().catch(() => {});
  }
}

export function parsePayload<T extends z.ZodType>(schema: T, payload: Uint8Array): z.infer<T> {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder().decode(payload));
  } catch (cause) {
    throw new FuseError('a frame whose payload is not JSON', { cause });
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new FuseError(`a frame that is not what the API promises: ${z.prettifyError(parsed.error)}`);
}

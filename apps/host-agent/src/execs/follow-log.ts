/** An exec's log as a stream of frames. */
import { type FileHandle, open } from 'node:fs/promises';
import { AppError, encodeFrame, FRAME_HEADER_BYTES, frameType, HEARTBEAT_MS, invalidField } from '@fuse/contract';
import { isMissing } from '../vms/atomic-file.ts';
import type { Exec } from './exec.ts';
import { framesOfFile } from './frame-file.ts';
import { type LogPart, type LogView, partEnd } from './log-parts.ts';

const READ_BYTES = 64 * 1024;
const heartbeatFrame = encodeFrame(frameType.heartbeat, new Uint8Array());

export type FollowedExec = Pick<Exec, 'log' | 'recent' | 'followers' | 'changes' | 'running' | 'detached' | 'view'>;

export interface FollowOptions {
  follow: boolean;
  signal: AbortSignal;
  /** A heartbeat frame whenever nothing came for so long. */
  heartbeat?: boolean;
  heartbeatMs?: number;
}

/** Where to begin: at a byte, or at a frame at most `tail` bytes before the end. Throws `invalid_argument` beyond the end. */
export async function startOfLog(log: LogView, from: { offset: number } | { tail: number }): Promise<number> {
  if ('tail' in from) return frameBorder(log, Math.max(0, log.end - from.tail));
  if (from.offset > log.end) throw invalidField('offset', `is beyond the ${log.end} bytes that the log holds`);
  return from.offset;
}

/** The first end of a frame that is not below `position`, or what follows when it is not kept. */
async function frameBorder(log: LogView, position: number): Promise<number> {
  const { end } = log;
  const part = partAt(log, position);
  if (part === undefined) return position;
  let border = part.offset;
  for await (const frame of framesOfFile(part.path, Math.min(part.bytes, end - part.offset))) {
    if (border >= position) break;
    border += FRAME_HEADER_BYTES + frame.payload.length;
  }
  return border;
}

/**
 * What is there from byte `at` of the log on; with `follow`, then what comes, until the exec has ended. What is not kept any more is a gap frame.
 * Nothing is read ahead of the reader, so that one who stalls costs one buffer. Throws when the exec was lost: such a stream is cut, it has no end.
 */
export async function* followLog(exec: FollowedExec, from: number, options: FollowOptions): AsyncGenerator<Uint8Array> {
  const { follow, signal, heartbeat = false, heartbeatMs = HEARTBEAT_MS } = options;
  const untilBytes = follow ? Number.POSITIVE_INFINITY : exec.log.end;
  const follower = follow ? exec.followers.add(from) : undefined;
  const file = new OpenPart();
  let at = from;
  try {
    for (;;) {
      signal.throwIfAborted();
      const end = Math.min(exec.log.end, untilBytes);
      if (at < end) {
        const chunk = exec.recent(at)?.subarray(0, end - at) ?? (await file.read(exec.log, at, end));
        if (chunk === undefined) {
          const to = Math.min(nextKept(exec.log, at), untilBytes);
          if (to > at) yield gapFrame(at, to);
          at = to;
        } else {
          yield chunk;
          at += chunk.length;
        }
        follower?.moveTo(at);
      } else if (!follow) {
        return;
      } else if (!exec.running) {
        const { state, error } = exec.view();
        if (state === 'lost') throw new AppError('vm_lost', error ?? 'the exec was lost');
        return;
      } else if (exec.detached) {
        throw new AppError('unavailable', 'the host agent is stopping');
      } else {
        const waitedFromMs = performance.now();
        await exec.changes.wait({ signal, ...(heartbeat ? { timeoutMs: heartbeatMs } : {}) });
        const late = heartbeat && performance.now() - waitedFromMs >= heartbeatMs - 1;
        // Whoever has read everything stands at the border of a frame.
        if (late && exec.log.end === at && exec.running && !signal.aborted) yield heartbeatFrame;
      }
    }
  } finally {
    follower?.close();
    await file.close();
  }
}

/** The file that is being read. It is read to its end although it may have been dropped meanwhile: gaps are between files. */
class OpenPart {
  #file: FileHandle | undefined;
  #part: LogPart | undefined;

  /** Undefined when nothing is kept there. */
  async read(log: LogView, at: number, end: number): Promise<Uint8Array | undefined> {
    const last = this.#part;
    // A dropped part does not grow any more, so the bytes that it had are all there are.
    if (last === undefined || this.#file === undefined || at < last.offset || at >= partEnd(last))
      if (!(await this.#open(partAt(log, at)))) return undefined;
    if (this.#part === undefined || this.#file === undefined) return undefined;
    const bytes = Math.min(partEnd(this.#part), end) - at;
    const buffer = Buffer.allocUnsafe(Math.min(bytes, READ_BYTES));
    const { bytesRead } = await this.#file.read(buffer, 0, buffer.length, at - this.#part.offset);
    if (bytesRead === 0) throw new AppError('vm_lost', 'the log is gone');
    return buffer.subarray(0, bytesRead);
  }

  async close(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    this.#part = undefined;
    await file?.close();
  }

  async #open(part: LogPart | undefined): Promise<boolean> {
    if (part === undefined) return false;
    if (part.path !== this.#part?.path) {
      await this.close();
      try {
        this.#file = await open(part.path, 'r');
      } catch (error) {
        if (isMissing(error)) return false; // dropped this moment
        throw error;
      }
    }
    this.#part = part;
    return true;
  }
}

const partAt = ({ parts }: LogView, at: number): LogPart | undefined =>
  parts.find((part) => at >= part.offset && at < partEnd(part));

/** `at` itself when it is kept after all. */
function nextKept(log: LogView, at: number): number {
  if (partAt(log, at) !== undefined) return at;
  return log.parts.find((part) => part.offset > at)?.offset ?? log.end;
}

function gapFrame(from: number, to: number): Uint8Array {
  return encodeFrame(frameType.gap, Buffer.from(JSON.stringify({ from, to })));
}

/** Reading an exec's log: a file of whole frames. */
import { closeSync, createReadStream, openSync, readSync } from 'node:fs';
import { FRAME_HEADER_BYTES, type Frame, FrameParser, frameType } from '@fuse/contract';
import type { GuestExecExit } from '@fuse/host-protocol';
import { parseExit } from './frame-sieve.ts';
import { type LogView, partEnd } from './log-parts.ts';

const READ_BYTES = 256 * 1024;
/** Read at once: streams and the thread pool take ten times as long for so little. */
const SMALL_BYTES = 32 * 1024;

/** The whole frames among the first `endBytes` of the file. */
export async function* framesOfFile(path: string, endBytes: number, signal?: AbortSignal): AsyncGenerator<Frame> {
  if (endBytes === 0) return;
  const parser = new FrameParser();
  if (endBytes <= SMALL_BYTES) return yield* parser.push(readNow(path, endBytes));
  const bytes = createReadStream(path, {
    end: endBytes - 1,
    highWaterMark: READ_BYTES,
    ...(signal === undefined ? {} : { signal }),
  });
  for await (const chunk of bytes) yield* parser.push(chunk as Uint8Array); // no encoding is set: Buffers
}

function readNow(path: string, bytes: number): Uint8Array {
  const buffer = Buffer.allocUnsafe(bytes);
  const fd = openSync(path, 'r');
  try {
    let read = 0;
    for (let got = -1; read < bytes && got !== 0; read += got) got = readSync(fd, buffer, read, bytes - read, read);
    return buffer.subarray(0, read);
  } finally {
    closeSync(fd);
  }
}

/** Of a log that does not grow; it ends at a gap. */
export async function* framesOfLog(log: LogView): AsyncGenerator<Frame> {
  const inMemory = log.recent?.(0);
  if (inMemory?.length === log.end) return yield* new FrameParser().push(inMemory);
  let end = 0;
  for (const part of log.parts) {
    if (part.offset > end) return;
    yield* framesOfFile(part.path, part.bytes);
    end = partEnd(part);
  }
}

export interface FrameFileSummary {
  /** Where the last whole frame ends; bytes beyond are of a write that was cut. */
  wholeBytes: number;
  exit?: GuestExecExit;
}

export async function summarizeFrameFile(path: string, sizeBytes: number): Promise<FrameFileSummary> {
  let wholeBytes = 0;
  for await (const frame of framesOfFile(path, sizeBytes)) {
    wholeBytes += FRAME_HEADER_BYTES + frame.payload.length;
    if (frame.type === frameType.exit) return { wholeBytes, exit: parseExit(frame.payload) };
  }
  return { wholeBytes };
}

export interface StreamHeads {
  stdout: Buffer;
  stderr: Buffer;
}

/** The first `limitBytes` of each stream, up to a gap. Reads no further than it must. */
export async function readHeads(log: LogView, limitBytes: number): Promise<StreamHeads> {
  const heads = { stdout: new Head(limitBytes), stderr: new Head(limitBytes) };
  for await (const frame of framesOfLog(log)) {
    if (frame.type === frameType.stdout) heads.stdout.add(frame.payload);
    if (frame.type === frameType.stderr) heads.stderr.add(frame.payload);
    if (heads.stdout.full && heads.stderr.full) break;
  }
  return { stdout: heads.stdout.bytes(), stderr: heads.stderr.bytes() };
}

class Head {
  readonly #chunks: Uint8Array[] = [];
  #room: number;

  constructor(limitBytes: number) {
    this.#room = limitBytes;
  }

  get full(): boolean {
    return this.#room === 0;
  }

  add(payload: Uint8Array): void {
    if (this.full) return;
    const taken = payload.subarray(0, this.#room);
    this.#chunks.push(taken);
    this.#room -= taken.length;
  }

  bytes(): Buffer {
    return Buffer.concat(this.#chunks);
  }
}

/** Execs of an environment that is gone, read from its archive (host-protocol's exec-archive.ts) piece by piece. */
import { buffer } from 'node:stream/consumers';
import { AppError, encodeFrame, FRAME_HEADER_BYTES, FrameParser, frameType } from '@fuse/contract';
import {
  EXEC_ARCHIVE_MAGIC,
  ExecArchiveIndex,
  type HostExec,
  type HostExecResult,
  MAX_ARCHIVE_INDEX_BYTES,
} from '@fuse/host-protocol';
import type { ObjectStore } from '@fuse/object-store';
import type { ExecSource, LogOrder, OpenLog } from './exec-source.ts';

const FIRST_READ_BYTES = 65_536;
const HEAD_BYTES = EXEC_ARCHIVE_MAGIC.length + 4;

type Archived = ExecArchiveIndex['execs'][number];
type Segment = Archived['segments'][number];

export class ArchiveSource implements ExecSource {
  readonly #store: ObjectStore;
  readonly #key: string;
  readonly #index: ExecArchiveIndex;
  /** Where the logs begin in the object. */
  readonly #base: number;

  private constructor(store: ObjectStore, key: string, index: ExecArchiveIndex, base: number) {
    this.#store = store;
    this.#key = key;
    this.#index = index;
    this.#base = base;
  }

  /** `not_found` when there is none, `integrity_error` when it is not what it should be. */
  static async open(store: ObjectStore, key: string, signal: AbortSignal): Promise<ArchiveSource> {
    const head = await read(store, key, { start: 0, end: FIRST_READ_BYTES }, signal);
    if (head.length < HEAD_BYTES || head.toString('latin1', 0, EXEC_ARCHIVE_MAGIC.length) !== EXEC_ARCHIVE_MAGIC)
      throw damaged(key);
    const base = HEAD_BYTES + head.readUInt32BE(EXEC_ARCHIVE_MAGIC.length);
    if (base > HEAD_BYTES + MAX_ARCHIVE_INDEX_BYTES) throw damaged(key);
    const rest =
      base > head.length ? await read(store, key, { start: head.length, end: base }, signal) : Buffer.alloc(0);
    try {
      const text = Buffer.concat([head, rest]).toString('utf8', HEAD_BYTES, base);
      return new ArchiveSource(store, key, ExecArchiveIndex.parse(JSON.parse(text)), base);
    } catch (error) {
      throw damaged(key, error);
    }
  }

  async list(): Promise<HostExec[]> {
    return this.#index.execs.map(({ exec }) => ended(exec));
  }

  async get(execId: string): Promise<HostExec> {
    return ended(this.#find(execId).exec);
  }

  async result(execId: string, limitBytes: number, signal: AbortSignal): Promise<HostExecResult> {
    const { exec } = this.#find(execId);
    const heads = new Heads(limitBytes);
    const parser = new FrameParser();
    reading: for await (const bytes of this.#frames(execId, 0, signal))
      for (const { type, payload } of parser.push(bytes)) if (!heads.take(type, payload)) break reading;
    const { stdout, stderr } = heads;
    const isWhole =
      exec.exit !== undefined && stdout.length === exec.exit.stdout_bytes && stderr.length === exec.exit.stderr_bytes;
    return {
      exec: ended(exec),
      stdout_base64: stdout.toString('base64'),
      stderr_base64: stderr.toString('base64'),
      truncated: !isWhole,
    };
  }

  async log(execId: string, { from, signal }: LogOrder): Promise<OpenLog> {
    const stop = new AbortController();
    const either = AbortSignal.any([signal, stop.signal]);
    const offset = 'offset' in from ? from.offset : await this.#tailStart(execId, from.tail, either);
    return { offset, body: this.#frames(execId, offset, either), destroy: () => stop.abort() };
  }

  #find(execId: string): Archived {
    const found = this.#index.execs.find(({ exec }) => exec.id === execId);
    if (found === undefined) throw new AppError('not_found', `exec ${execId} not found`);
    return found;
  }

  /** A frame at most `bytes` before the end. */
  async #tailStart(execId: string, bytes: number, signal: AbortSignal): Promise<number> {
    const { exec, segments } = this.#find(execId);
    const target = Math.max(0, exec.log_bytes - bytes);
    const first = segments.find((segment) => segment.offset + segment.size_bytes > target);
    if (first === undefined) return exec.log_bytes;
    let at = first.offset;
    const parser = new FrameParser();
    for await (const piece of this.#frames(execId, at, signal))
      for (const { type, payload } of parser.push(piece)) {
        if (at >= target) return at;
        at =
          type === frameType.gap ? Number(JSON.parse(Buffer.from(payload).toString('utf8')).to) : at + sizeOf(payload);
      }
    return exec.log_bytes;
  }

  /** From byte `offset` of the log on; what is not kept is a gap. */
  async *#frames(execId: string, offset: number, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const { exec, segments } = this.#find(execId);
    let at = offset;
    for (const segment of joined(segments)) {
      const end = segment.offset + segment.size_bytes;
      if (end <= at) continue;
      if (segment.offset > at) yield gap(at, segment.offset);
      at = Math.max(at, segment.offset);
      const start = this.#base + segment.at + (at - segment.offset);
      const { body } = await this.#store.get(this.#key, { range: { start, end: start + (end - at) }, signal });
      for await (const bytes of body) yield bytes as Uint8Array; // a byte stream
      at = end;
    }
    if (at < exec.log_bytes) yield gap(at, exec.log_bytes);
  }
}

const sizeOf = (payload: Uint8Array): number => FRAME_HEADER_BYTES + payload.length;

const gap = (from: number, to: number): Uint8Array =>
  encodeFrame(frameType.gap, Buffer.from(JSON.stringify({ from, to })));

/** Whatever ran when its VM went has no known end. */
const ended = (exec: HostExec): HostExec =>
  exec.state === 'running' ? { ...exec, state: 'lost', error: exec.error ?? 'its environment is gone' } : exec;

/** Those that follow each other in the log and in the object are one read. */
function joined(segments: readonly Segment[]): Segment[] {
  const runs: Segment[] = [];
  for (const segment of segments) {
    const last = runs.at(-1);
    const follows =
      last !== undefined &&
      last.offset + last.size_bytes === segment.offset &&
      last.at + last.size_bytes === segment.at;
    if (follows) last.size_bytes += segment.size_bytes;
    else runs.push({ ...segment });
  }
  return runs;
}

/** The first bytes of each stream. */
class Heads {
  readonly #limitBytes: number;
  readonly #pieces = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  readonly #sizes = { stdout: 0, stderr: 0 };

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  /** False when nothing that follows is wanted: both are full, or something is missing. */
  take(type: number, payload: Uint8Array): boolean {
    if (type === frameType.gap) return false;
    const stream = type === frameType.stdout ? 'stdout' : type === frameType.stderr ? 'stderr' : undefined;
    if (stream === undefined) return true;
    const piece = payload.slice(0, this.#limitBytes - this.#sizes[stream]);
    this.#pieces[stream].push(piece);
    this.#sizes[stream] += piece.length;
    return this.#sizes.stdout < this.#limitBytes || this.#sizes.stderr < this.#limitBytes;
  }

  get stdout(): Buffer {
    return Buffer.concat(this.#pieces.stdout);
  }

  get stderr(): Buffer {
    return Buffer.concat(this.#pieces.stderr);
  }
}

async function read(
  store: ObjectStore,
  key: string,
  range: { start: number; end: number },
  signal: AbortSignal,
): Promise<Buffer> {
  try {
    return await buffer((await store.get(key, { range, signal })).body);
  } catch (error) {
    if (error instanceof AppError && error.code === 'invalid_argument') throw damaged(key, error); // it ends before
    throw error;
  }
}

const damaged = (key: string, cause?: unknown): AppError =>
  new AppError('integrity_error', 'the archive of these execs is damaged', { cause: cause ?? key });

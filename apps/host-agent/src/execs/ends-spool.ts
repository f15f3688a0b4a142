/**
 * A log that keeps the first half and the last half of its bound: the head in one file, the rest in segments of which the oldest goes when a new
 * one would be over the bound. Bytes are the guest's frame stream as it came, and so are the offsets. Files hold whole frames; what a killed process
 * left half written is cut off when the log is opened again. Writes are not flushed: they survive the end of this process, not of the machine.
 *
 * While somebody follows with `hold`, nothing unread is dropped: `take` waits. A full disk drops everything behind the head.
 */
import { type FileHandle, open, rm } from 'node:fs/promises';
import { encodeFrame, frameType } from '@fuse/contract';
import type { GuestExecExit } from '@fuse/host-protocol';
import { isDiskFull } from '../vms/disk-full.ts';
import { appendTo } from './append-to.ts';
import { type Followers, IN_FLIGHT_BYTES } from './followers.ts';
import { summarizeFrameFile } from './frame-file.ts';
import { FrameScan } from './frame-scan.ts';
import { findParts, gapOf, type LogPart, newLog, partEnd, segmentPath } from './log-parts.ts';
import { RecentBytes } from './recent-bytes.ts';
import { type Spool, SpoolError } from './spool.ts';

const SEGMENTS = 16;
const SMALLEST_SEGMENT_BYTES = 4_096;

export interface EndsSpoolOptions {
  directory: string;
  /** Nothing of the log can be there yet, so nothing is looked for. */
  isNew?: boolean;
  limitBytes: number;
  followers: Followers;
  /** How far a follower may be behind before the command waits for it; absent: as far as the log reaches. */
  maxLagBytes?: number | undefined;
  /** `end` has grown. */
  onAppended: () => void;
}

export class EndsSpool implements Spool {
  readonly exitInFile: GuestExecExit | undefined;
  readonly #options: EndsSpoolOptions;
  readonly #headLimitBytes: number;
  readonly #tailLimitBytes: number;
  readonly #segmentBytes: number;
  readonly #head: LogPart;
  readonly #recent = new RecentBytes();
  #segments: LogPart[];
  /** The file that grows: the last segment, or the head while there is none. */
  #file: FileHandle;
  /** Nothing is added to the head any more. */
  #headClosed: boolean;
  #end: number;
  #scan: FrameScan;
  /** Of a frame that is not whole yet. */
  #pending: Uint8Array[] = [];

  static async open(options: EndsSpoolOptions): Promise<EndsSpool> {
    const { directory, isNew = false } = options;
    const { head, segments, stale } = isNew ? newLog(directory) : await findParts(directory);
    for (const path of stale) await rm(path, { force: true });
    const last = segments.at(-1) ?? head;
    const file = await open(last.path, 'a', 0o600);
    try {
      const { wholeBytes, exit } = await summarizeFrameFile(last.path, last.bytes);
      if (wholeBytes < last.bytes) await file.truncate(wholeBytes);
      last.bytes = wholeBytes;
      return new EndsSpool(options, { head, segments, file, exit });
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  private constructor(
    options: EndsSpoolOptions,
    found: { head: LogPart; segments: LogPart[]; file: FileHandle; exit: GuestExecExit | undefined },
  ) {
    this.#options = options;
    this.#headLimitBytes = Math.ceil(options.limitBytes / 2);
    this.#tailLimitBytes = options.limitBytes - this.#headLimitBytes;
    this.#segmentBytes = Math.max(SMALLEST_SEGMENT_BYTES, Math.ceil(this.#tailLimitBytes / SEGMENTS));
    this.#head = found.head;
    this.#segments = found.segments;
    this.#file = found.file;
    this.#headClosed = found.segments.length > 0;
    this.#end = partEnd(found.segments.at(-1) ?? found.head);
    this.exitInFile = found.exit;
    this.#scan = new FrameScan(this.#segmentBytes);
  }

  get parts(): readonly LogPart[] {
    return this.#head.bytes === 0 ? this.#segments : [this.#head, ...this.#segments];
  }

  get end(): number {
    return this.#end;
  }

  get begun(): boolean {
    return this.#end > 0;
  }

  get truncated(): boolean {
    return gapOf(this) !== undefined;
  }

  get guestOffset(): number {
    return this.#end;
  }

  async resumeAt(guestAckedOffset: number): Promise<number> {
    this.#scan = new FrameScan(this.#segmentBytes);
    this.#pending = [];
    // It was told so after they were dropped, or it lies: what is not here is a gap.
    if (guestAckedOffset > this.#end) await this.#skipTo(guestAckedOffset);
    return this.#end;
  }

  async take(chunk: Uint8Array, signal: AbortSignal): Promise<GuestExecExit | undefined> {
    const { borders, exit } = this.#scan.push(chunk);
    let from = 0;
    for (const border of borders) {
      const run = chunk.subarray(from, border);
      const whole = this.#pending.length === 0 ? run : Buffer.concat([...this.#pending, run]);
      this.#pending = [];
      await this.#keep(whole, signal);
      from = border;
    }
    if (exit === undefined && from < chunk.length) this.#pending.push(chunk.subarray(from));
    return exit;
  }

  async takeExit(exit: GuestExecExit): Promise<GuestExecExit> {
    await this.#append(encodeFrame(frameType.exit, Buffer.from(JSON.stringify(exit))));
    return exit;
  }

  recent(position: number): Uint8Array | undefined {
    return this.#recent.from(position);
  }

  async close(): Promise<void> {
    this.#recent.clear();
    await this.#file.close();
  }

  async #keep(run: Uint8Array, signal: AbortSignal): Promise<void> {
    await this.#options.followers.whileFar((slowest) => this.#mustWait(slowest, run.length), signal);
    await this.#append(run);
    while (this.#oldestIsOver()) await this.#dropOldest();
  }

  /** Never for one that has read everything: a single run may be larger than any bound. */
  #mustWait(slowest: number, bytes: number): boolean {
    if (slowest >= this.#end) return false;
    const { maxLagBytes = Number.POSITIVE_INFINITY } = this.#options;
    if (this.#end + bytes - slowest > maxLagBytes) return true;
    const tailStart = this.#segments[0]?.offset ?? this.#head.bytes;
    const headFits = !this.#headClosed && this.#end + bytes <= this.#headLimitBytes;
    return !headFits && this.#end + bytes - Math.max(slowest, tailStart) > this.#tailLimitBytes;
  }

  async #append(run: Uint8Array): Promise<void> {
    const kept = (await this.#write(run)) || (await this.#dropAll().then(() => this.#write(run)));
    if (!kept) return this.#skipTo(this.#end + run.length);
    if (this.#options.followers.count > 0) this.#recent.add(this.#end, run);
    else this.#recent.clear();
    this.#end += run.length;
    this.#options.onAppended();
  }

  /** False when the disk is full. */
  async #write(run: Uint8Array): Promise<boolean> {
    try {
      const into = await this.#partFor(run.length);
      try {
        await appendTo(this.#file.fd, run);
      } catch (error) {
        await this.#file.truncate(into.bytes);
        throw error;
      }
      into.bytes += run.length;
      return true;
    } catch (error) {
      if (isDiskFull(error)) return false;
      throw new SpoolError('the log could not be written', { cause: error });
    }
  }

  async #partFor(bytes: number): Promise<LogPart> {
    if (!this.#headClosed && this.#end + bytes <= this.#headLimitBytes) return this.#head;
    this.#headClosed = true;
    const last = this.#segments.at(-1);
    if (last !== undefined && last.bytes + bytes <= this.#segmentBytes) return last;
    const segment = { offset: this.#end, path: segmentPath(this.#options.directory, this.#end), bytes: 0 };
    const file = await open(segment.path, 'w', 0o600);
    await this.#file.close();
    this.#file = file;
    this.#segments.push(segment);
    return segment;
  }

  #oldestIsOver(): boolean {
    const [oldest, next] = this.#segments;
    if (oldest === undefined || next === undefined) return false;
    if (this.#end - oldest.offset <= this.#tailLimitBytes) return false;
    return partEnd(oldest) <= this.#options.followers.slowest - IN_FLIGHT_BYTES;
  }

  async #dropOldest(): Promise<void> {
    const oldest = this.#segments.shift();
    if (oldest !== undefined) await rm(oldest.path, { force: true });
  }

  /** The file that is open stays so: what is written next begins a new one. */
  async #dropAll(): Promise<void> {
    this.#headClosed = true;
    while (this.#segments.length > 0) await this.#dropOldest();
  }

  /** What lies between is dropped, and everything behind the head with it: a log has one gap. */
  async #skipTo(offset: number): Promise<void> {
    await this.#dropAll();
    this.#recent.clear();
    this.#end = offset;
    this.#options.onAppended();
  }
}

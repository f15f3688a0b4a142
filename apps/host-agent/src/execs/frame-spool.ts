/**
 * One exec's log on the host: its guest's frame stream, sieved, appended to a file. Writes are not flushed to the disk: they
 * survive the end of this process, not of the machine (whose end is the VM's as well).
 * A full disk ends the log as its bound does: the rest is counted and dropped, the command goes on.
 */
import { closeSync, fstatSync, ftruncateSync, openSync } from 'node:fs';
import { encodeFrame, frameType } from '@fuse/contract';
import type { GuestExecExit } from '@fuse/host-protocol';
import { isDiskFull } from '../vms/disk-full.ts';
import { appendTo } from './append-to.ts';
import { type FrameFileSummary, summarizeFrameFile } from './frame-file.ts';
import { FrameSieve } from './frame-sieve.ts';
import type { LogPart } from './log-parts.ts';
import { type Spool, SpoolError } from './spool.ts';

export interface FrameSpoolOptions {
  path: string;
  limitBytes: number;
  truncated: boolean;
  /** Awaited before the first cut frame is written, so that the cut is known whatever happens next. */
  onTruncated: () => Promise<void>;
  /** `logBytes` has grown. */
  onAppended: () => void;
}

/** A log that is not longer is kept in memory too: most commands say little, and are asked for it at once. */
const SMALL_LOG_BYTES = 4_096;

export class FrameSpool implements Spool {
  /** Undefined until something is written. */
  #fd: number | undefined;
  /** Whoever gives up waiting for a write leaves it under way. */
  #writing: Promise<void> = Promise.resolve();
  #closed = false;
  readonly #sieve: FrameSieve;
  readonly #options: FrameSpoolOptions;
  /** All of it, while it is small. */
  #small: Buffer | undefined;
  #logBytes: number;
  #truncationNoted: boolean;
  /** Read from the file when it was opened. */
  readonly exitInFile: GuestExecExit | undefined;

  /** Of a log that cannot be there yet: the file is made by the first `take`, so that the start of the command does not wait for it. */
  static begin(options: FrameSpoolOptions): FrameSpool {
    return new FrameSpool(undefined, { wholeBytes: 0 }, options);
  }

  /** Opens or makes the file; a half frame at its end, of a write that was cut, is taken off. */
  static async open(options: FrameSpoolOptions): Promise<FrameSpool> {
    const fd = openLog(options.path);
    try {
      const { size } = fstatSync(fd);
      const summary = await summarizeFrameFile(options.path, size);
      if (summary.wholeBytes < size) ftruncateSync(fd, summary.wholeBytes);
      return new FrameSpool(fd, summary, options);
    } catch (error) {
      closeSync(fd);
      throw error;
    }
  }

  private constructor(
    fd: number | undefined,
    { wholeBytes: logBytes, exit }: FrameFileSummary,
    options: FrameSpoolOptions,
  ) {
    this.#fd = fd;
    this.#logBytes = logBytes;
    this.#small = logBytes === 0 ? Buffer.alloc(0) : undefined;
    this.exitInFile = exit;
    this.#options = options;
    this.#truncationNoted = options.truncated;
    this.#sieve = new FrameSieve({
      limitBytes: options.limitBytes,
      // A log that was cut says nothing about the guest's offsets: the guest's own word counts then (`resumeAt`).
      guestOffset: options.truncated ? 0 : logBytes,
      logBytes,
      truncated: options.truncated,
    });
  }

  /** Bytes that readers may read: whole frames. */
  get logBytes(): number {
    return this.#logBytes;
  }

  get parts(): readonly LogPart[] {
    return [{ offset: 0, path: this.#options.path, bytes: this.#logBytes }];
  }

  get end(): number {
    return this.#logBytes;
  }

  get begun(): boolean {
    return this.#logBytes > 0;
  }

  recent(position: number): Uint8Array | undefined {
    return this.#small !== undefined && position < this.#logBytes ? this.#small.subarray(position) : undefined;
  }

  get truncated(): boolean {
    return this.#sieve.truncated;
  }

  /** Everything of the guest's stream below it is safe here (or dropped for good). */
  get guestOffset(): number {
    return this.#sieve.guestOffset;
  }

  /**
   * Where a new conversation starts, given what the guest keeps. A guest that has let go of bytes that the log lacks was told so after
   * they were dropped: the log ends there.
   */
  resumeAt(guestAckedOffset: number): number {
    if (guestAckedOffset > this.guestOffset) this.#sieve.truncate();
    const offset = Math.max(guestAckedOffset, this.guestOffset);
    this.#sieve.restart(offset);
    return offset;
  }

  /** Resolves when all that is kept of the chunk is written. Throws FrameError when the guest breaks the format, SpoolError. */
  async take(chunk: Uint8Array): Promise<GuestExecExit | undefined> {
    const { keep, exit } = this.#sieve.push(chunk);
    if (this.truncated && !this.#truncationNoted) {
      this.#truncationNoted = true;
      await this.#options.onTruncated();
    }
    if (keep.length > 0) await this.#append(keep.length === 1 && keep[0] !== undefined ? keep[0] : Buffer.concat(keep));
    return exit;
  }

  /** The guest told the end outside the stream. */
  async takeExit(exit: GuestExecExit): Promise<GuestExecExit> {
    await this.#append(encodeFrame(frameType.exit, Buffer.from(JSON.stringify(exit))));
    return exit;
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#writing.catch(() => {}); // whoever wrote was told
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }

  #append(bytes: Uint8Array): Promise<void> {
    this.#writing = this.#write(bytes);
    return this.#writing;
  }

  async #write(bytes: Uint8Array): Promise<void> {
    if (this.#closed) throw new SpoolError('the log is closed');
    try {
      this.#fd ??= openLog(this.#options.path);
      await appendTo(this.#fd, bytes);
      this.#logBytes += bytes.length;
      this.#small =
        this.#small === undefined || this.#logBytes > SMALL_LOG_BYTES ? undefined : Buffer.concat([this.#small, bytes]);
      this.#options.onAppended();
    } catch (error) {
      if (!isDiskFull(error)) throw new SpoolError('the log could not be written', { cause: error });
      if (this.#fd !== undefined) ftruncateSync(this.#fd, this.#logBytes);
      this.#sieve.truncate();
    }
  }
}

/** At once: the way through the thread pool takes longer. */
const openLog = (path: string): number => openSync(path, 'a', 0o600);

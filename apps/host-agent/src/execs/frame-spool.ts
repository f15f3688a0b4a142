/**
 * One exec's log on the host: its guest's frame stream, sieved, appended to a file. Writes are not flushed to the disk: they
 * survive the end of this process, not of the machine (whose end is the VM's as well).
 * A full disk ends the log as its bound does: the rest is counted and dropped, the command goes on.
 */
import { fstatSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { encodeFrame, frameType } from '@fuse/contract';
import type { GuestExecExit } from '@fuse/host-protocol';
import { isDiskFull } from '../vms/disk-full.ts';
import { appendTo } from './append-to.ts';
import { summarizeFrameFile } from './frame-file.ts';
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

export class FrameSpool implements Spool {
  readonly #file: FileHandle;
  readonly #sieve: FrameSieve;
  readonly #options: FrameSpoolOptions;
  #logBytes: number;
  #truncationNoted: boolean;
  /** Read from the file when it was opened. */
  readonly exitInFile: GuestExecExit | undefined;

  /** Opens or makes the file; a half frame at its end, of a write that was cut, is taken off. */
  static async open(options: FrameSpoolOptions): Promise<FrameSpool> {
    const file = await open(options.path, 'a', 0o600);
    try {
      const { size } = fstatSync(file.fd);
      const { wholeBytes, exit } = await summarizeFrameFile(options.path, size);
      if (wholeBytes < size) await file.truncate(wholeBytes);
      return new FrameSpool(file, wholeBytes, exit, options);
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  private constructor(
    file: FileHandle,
    logBytes: number,
    exitInFile: GuestExecExit | undefined,
    options: FrameSpoolOptions,
  ) {
    this.#file = file;
    this.#logBytes = logBytes;
    this.exitInFile = exitInFile;
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

  recent(): undefined {}

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
    await this.#file.close();
  }

  async #append(bytes: Uint8Array): Promise<void> {
    try {
      await appendTo(this.#file, bytes);
      this.#logBytes += bytes.length;
      this.#options.onAppended();
    } catch (error) {
      if (!isDiskFull(error)) throw new SpoolError('the log could not be written', { cause: error });
      await this.#file.truncate(this.#logBytes);
      this.#sieve.truncate();
    }
  }
}

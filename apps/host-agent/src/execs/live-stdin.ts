/**
 * What one connection types, as it comes, in one request to the guest that lasts as long as it. A terminal takes what all its viewers type, in the
 * order in which it arrives; into anything else a connection writes from the offset that it was told at its beginning, so that what an earlier
 * one of the same caller has left behind on its way is never written twice.
 */
import { PassThrough } from 'node:stream';
import { AppError } from '@fuse/contract';
import type { Exec } from './exec.ts';

/** Taken from a connection before it is held up: what comes behind, a signal or a size, is seen although the command reads nothing. */
const AHEAD_BYTES = 262_144;

export class LiveStdin {
  readonly #exec: Exec;
  /** Undefined: behind whatever is there. */
  readonly #fromOffset: number | undefined;
  readonly #signal: AbortSignal;
  #body: PassThrough | undefined;
  #written: Promise<unknown> = Promise.resolve();
  #bytes = 0;
  #ended = false;
  /** The guest takes no more: the rest is dropped, as a broken pipe drops it. */
  #closed = false;
  #failure: unknown;

  constructor(exec: Exec, fromOffset: number | undefined, signal: AbortSignal) {
    this.#exec = exec;
    this.#fromOffset = fromOffset;
    this.#signal = signal;
  }

  /** Resolves when there is room for more. Throws why an earlier write failed. */
  async write(bytes: Uint8Array): Promise<void> {
    this.#throwIfFailed();
    if (this.#closed || this.#ended || bytes.length === 0) return;
    const body = this.#begin();
    this.#bytes += bytes.length;
    if (!body.write(bytes)) await drained(body);
    this.#throwIfFailed();
  }

  /** The end of stdin (of a terminal: one end-of-file character); more may come to a terminal behind it. */
  async end(): Promise<void> {
    await this.close();
    this.#throwIfFailed();
    if (this.#closed || this.#ended) return;
    this.#ended = this.#exec.terminal === undefined;
    const offset = this.#fromOffset === undefined ? undefined : this.#fromOffset + this.#bytes;
    await this.#exec.writeStdin({ offset, end: true }, new Uint8Array(), this.#signal).catch(this.#onFailure);
    this.#throwIfFailed();
  }

  /** Resolves once all that was written has arrived, or never will. */
  async close(): Promise<void> {
    this.#body?.end();
    this.#body = undefined;
    await this.#written;
  }

  #begin(): PassThrough {
    if (this.#body !== undefined) return this.#body;
    const body = new PassThrough({ highWaterMark: AHEAD_BYTES });
    this.#body = body;
    const offset = this.#fromOffset === undefined ? undefined : this.#fromOffset + this.#bytes;
    this.#written = this.#exec
      .writeStdin({ offset }, body, this.#signal)
      .catch(this.#onFailure)
      .finally(() => body.destroy());
    return body;
  }

  readonly #onFailure = (error: unknown): void => {
    const closed = error instanceof AppError && error.code === 'conflict' && error.details?.reason === 'stdin_closed';
    if (closed) this.#closed = true;
    else this.#failure ??= error;
  };

  #throwIfFailed(): void {
    if (this.#failure !== undefined) throw this.#failure;
  }
}

function drained(body: PassThrough): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      body.off('drain', done);
      body.off('close', done);
      resolve();
    };
    body.once('drain', done);
    body.once('close', done);
    if (body.destroyed) done();
  });
}

/** The bytes of a put on their way in: counted, summed and held to the caller's limits. */
import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { AppError } from '@fuse/contract';
import { checkContentType, DEFAULT_CONTENT_TYPE } from './content-type.ts';
import type { ObjectInfo, PutOptions } from './object-store.ts';

const SLICE_BYTES = 1_048_576;

export class IncomingBody {
  readonly #source: Readable;
  readonly #options: PutOptions;
  readonly #contentType: string;
  readonly #hash = createHash('sha256');
  #sizeBytes = 0;
  #sha256: string | undefined;

  constructor(body: Readable | Uint8Array, options: PutOptions = {}) {
    this.#source = body instanceof Readable ? body : Readable.from(slices(body));
    this.#options = options;
    this.#contentType = options.contentType ?? DEFAULT_CONTENT_TYPE;
    // An error before the first read would have no listener; `chunks` throws it all the same.
    this.#source.on('error', () => {});
  }

  /** Ends only after a whole source within limits and of the expected sum; else throws. `stop` ends it as the caller's own signal does. */
  async *chunks(stop?: AbortSignal): AsyncGenerator<Uint8Array, void, undefined> {
    const signals = [this.#options.signal, stop].filter((each) => each !== undefined);
    const interruptible = new Interruptible(signals);
    try {
      checkContentType(this.#contentType);
      const iterator: AsyncIterator<unknown> = this.#source[Symbol.asyncIterator]();
      for (;;) {
        const { value, done } = await interruptible.wait(() => iterator.next());
        if (done === true) break;
        const bytes = toBytes(value);
        this.#take(bytes);
        if (bytes.length > 0) yield bytes;
      }
      this.#finish();
    } finally {
      interruptible.end();
      this.destroy();
    }
  }

  #take(bytes: Uint8Array): void {
    const { maxBytes = Number.POSITIVE_INFINITY } = this.#options;
    this.#sizeBytes += bytes.length;
    if (this.#sizeBytes > maxBytes)
      throw new AppError('payload_too_large', `the object is larger than ${maxBytes} bytes`);
    this.#hash.update(bytes);
  }

  #finish(): void {
    const sum = this.#hash.digest('hex');
    const { expectedSha256 } = this.#options;
    if (expectedSha256 !== undefined && expectedSha256 !== sum)
      throw new AppError('integrity_error', `the bytes have sha256 ${sum}, not ${expectedSha256}`);
    this.#sha256 = sum;
  }

  /** Once `chunks` has ended. */
  info(key: string): ObjectInfo {
    if (this.#sha256 === undefined) throw new Error('the body has not been read to its end');
    return { key, sizeBytes: this.#sizeBytes, sha256: this.#sha256, contentType: this.#contentType };
  }

  /** For a put that ends before it reads. */
  destroy(): void {
    this.#source.destroy();
  }
}

function* slices(bytes: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += SLICE_BYTES) yield bytes.subarray(at, at + SLICE_BYTES);
}

function toBytes(chunk: unknown): Uint8Array {
  if (chunk instanceof Uint8Array) return chunk;
  if (typeof chunk === 'string') return Buffer.from(chunk);
  throw new TypeError('a body gives bytes or strings');
}

/**
 * Waits that end with the reason of the first signal that aborts: a source may hang and not even notice that it is destroyed.
 * (Promise.race against one lasting promise would keep every chunk in that promise's reactions.)
 */
class Interruptible {
  readonly #signals: readonly AbortSignal[];
  #interrupt: (reason: unknown) => void = () => {};
  readonly #onAbort = () => this.#interrupt(this.#signals.find((each) => each.aborted)?.reason);

  constructor(signals: readonly AbortSignal[]) {
    this.#signals = signals;
    for (const each of signals) each.addEventListener('abort', this.#onAbort, { once: true });
  }

  wait<T>(work: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#interrupt = reject;
      if (this.#signals.some((each) => each.aborted)) this.#onAbort();
      else work().then(resolve, reject);
    });
  }

  end(): void {
    for (const each of this.#signals) each.removeEventListener('abort', this.#onAbort);
  }
}

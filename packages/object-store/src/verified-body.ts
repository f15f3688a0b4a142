import { createHash } from 'node:crypto';
import { Transform, type TransformCallback } from 'node:stream';
import { AppError } from '@fuse/contract';
import type { ObjectInfo } from './object-store.ts';

export const damaged = (key: string, what: string): AppError =>
  new AppError('integrity_error', `object "${key}" is damaged: ${what}`);

/** Passes a whole object on, but for its last bytes, which come only once all of them have the recorded sum. */
export class VerifiedBody extends Transform {
  readonly #info: ObjectInfo;
  readonly #hash = createHash('sha256');
  #seenBytes = 0;
  #last: Buffer | undefined;

  constructor(info: ObjectInfo) {
    super();
    this.#info = info;
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.#seenBytes += chunk.length;
    this.#hash.update(chunk);
    const { key, sizeBytes } = this.#info;
    if (this.#seenBytes > sizeBytes) done(damaged(key, `it has more than its ${sizeBytes} bytes`));
    else if (this.#seenBytes < sizeBytes) done(null, chunk);
    else {
      this.#last = chunk;
      done();
    }
  }

  override _flush(done: TransformCallback): void {
    const { key, sizeBytes, sha256 } = this.#info;
    if (this.#seenBytes < sizeBytes) done(damaged(key, `it ends after ${this.#seenBytes} of ${sizeBytes} bytes`));
    else if (this.#hash.digest('hex') !== sha256) done(damaged(key, 'its bytes do not have the sum recorded with it'));
    else done(null, this.#last);
  }
}

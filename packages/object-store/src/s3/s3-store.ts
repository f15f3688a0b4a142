/** The object store in a bucket of any S3 server. Names and metadata: bucket.ts and sum-record.ts. */
import { randomUUID } from 'node:crypto';
import { addAbortSignal, PassThrough, pipeline, Readable } from 'node:stream';
import {
  DeleteObjectCommand,
  GetObjectCommand,
  type GetObjectCommandOutput,
  HeadObjectCommand,
  type HeadObjectCommandOutput,
  PutObjectCommand,
} from '@aws-sdk/client-s3';
import { AppError, invalidField } from '@fuse/contract';
import type { S3StoreConfig } from '../config.ts';
import { DEFAULT_CONTENT_TYPE } from '../content-type.ts';
import { IncomingBody } from '../incoming-body.ts';
import { checkKey } from '../keys.ts';
import type { GetOptions, ObjectInfo, ObjectStore, PutOptions } from '../object-store.ts';
import { checkRange, resolveRange } from '../range.ts';
import { damaged, VerifiedBody } from '../verified-body.ts';
import { type Bucket, openBucket } from './bucket.ts';
import { checkBucket } from './check.ts';
import { deleteBelow, listBelow } from './listing.ts';
import { uploadMultipart } from './multipart.ts';
import { type Part, partsOf } from './parts.ts';
import { type PresignOptions, presignGet } from './presign.ts';
import { hasS3Code, isNoSuchKey, onS3, s3Error } from './s3-errors.ts';
import { deleteSumRecord, infoOf, objectHeaders, recordedUpload, writeSumRecord } from './sum-record.ts';

/** Reads of an object that is being replaced begin again. */
const READ_TRIES = 5;

export class S3Store implements ObjectStore {
  readonly #config: S3StoreConfig;
  readonly #bucket: Bucket;

  constructor(config: S3StoreConfig) {
    this.#config = config;
    this.#bucket = openBucket(config);
  }

  check(): Promise<void> {
    return checkBucket(this, this.#bucket, this.#config);
  }

  async put(key: string, body: Readable | Uint8Array, options: PutOptions = {}): Promise<ObjectInfo> {
    const incoming = new IncomingBody(body, options);
    const stop = new AbortController();
    const onAbort = () => stop.abort(options.signal?.reason);
    options.signal?.addEventListener('abort', onAbort, { once: true });
    try {
      checkKey(key);
      const parts = partsOf(incoming.chunks(stop.signal));
      const { value: first } = await parts.next();
      if (first === undefined) throw new Error('a body has at least one part');
      if (first.last) await this.#putWhole(incoming.info(key), first.bytes);
      else await this.#putParts({ key, first, rest: parts, incoming, options, stop });
      return incoming.info(key);
    } finally {
      options.signal?.removeEventListener('abort', onAbort);
      incoming.destroy();
    }
  }

  async get(key: string, { range, signal }: GetOptions = {}): Promise<{ info: ObjectInfo; body: Readable }> {
    checkKey(key);
    signal?.throwIfAborted();
    if (range !== undefined) checkRange(range);
    for (let attempt = 1; attempt <= READ_TRIES; attempt += 1) {
      const stored = await this.#fetch(key, range, signal);
      if (stored === undefined) return this.#emptyRange(key, range);
      const info = await infoOf(this.#bucket, key, stored).catch((error: unknown) => {
        stored.bytes.destroy();
        throw error;
      });
      if (info !== undefined) {
        const body = handOver(stored.bytes, resolveRange(range, info.sizeBytes).whole ? info : undefined);
        return { info, body: signal === undefined ? body : addAbortSignal(signal, body) };
      }
      stored.bytes.destroy();
    }
    throw damaged(key, 'the record of its sum is gone');
  }

  async head(key: string): Promise<ObjectInfo> {
    checkKey(key);
    for (let attempt = 1; attempt <= READ_TRIES; attempt += 1) {
      const stored = await this.#head(key);
      if (stored === undefined) throw missing(key);
      const info = await infoOf(this.#bucket, key, stored);
      if (info !== undefined) return info;
    }
    throw damaged(key, 'the record of its sum is gone');
  }

  async delete(key: string): Promise<boolean> {
    checkKey(key);
    const stored = await this.#head(key);
    if (stored === undefined) return false;
    await onS3(this.#bucket.client.send(new DeleteObjectCommand(this.#target(key))));
    const uploadId = recordedUpload(stored);
    if (uploadId !== undefined) await deleteSumRecord(this.#bucket, key, uploadId);
    return true;
  }

  async deletePrefix(prefix: string): Promise<{ objects: number; bytes: number }> {
    if (prefix === '') throw invalidField('prefix', 'must not be empty');
    checkKey(prefix, 'prefix');
    const deleted = await deleteBelow(this.#bucket, `${this.#bucket.objects}${prefix}/`);
    await deleteBelow(this.#bucket, `${this.#bucket.sums}${prefix}/`);
    return deleted;
  }

  async *list(prefix: string): AsyncGenerator<{ key: string; sizeBytes: number }, void, undefined> {
    if (prefix !== '') checkKey(prefix, 'prefix');
    const below = prefix === '' ? this.#bucket.objects : `${this.#bucket.objects}${prefix}/`;
    for await (const page of listBelow(this.#bucket, below)) {
      for (const { name, sizeBytes } of page) yield { key: name.slice(this.#bucket.objects.length), sizeBytes };
    }
  }

  async presignGet(key: string, options: PresignOptions): Promise<string> {
    checkKey(key);
    return presignGet(this.#bucket, this.#target(key).Key, options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#bucket.client.destroy();
  }

  #target(key: string): { Bucket: string; Key: string } {
    return { Bucket: this.#bucket.name, Key: this.#bucket.objects + key };
  }

  /** Not cut short: it is small, and nobody could tell whether it took place. */
  async #putWhole({ key, contentType, sha256 }: ObjectInfo, bytes: Buffer): Promise<void> {
    const headers = objectHeaders({ contentType, sha256, uploadId: randomUUID() });
    await onS3(this.#bucket.client.send(new PutObjectCommand({ ...this.#target(key), ...headers, Body: bytes })));
  }

  async #putParts({ key, first, rest, incoming, options, stop }: StreamedPut): Promise<void> {
    const { contentType = DEFAULT_CONTENT_TYPE, expectedSha256 } = options;
    const uploadId = randomUUID();
    await uploadMultipart({
      bucket: this.#bucket,
      name: this.#target(key).Key,
      headers: objectHeaders({ contentType, sha256: expectedSha256, uploadId }),
      parts: startingWith(first, rest),
      stop,
      beforeComplete: async () => {
        if (expectedSha256 !== undefined) return;
        await writeSumRecord(this.#bucket, key, uploadId, incoming.info(key).sha256);
      },
    });
  }

  /** Undefined when the range begins at or beyond the end. */
  async #fetch(key: string, range: GetOptions['range'], signal: AbortSignal | undefined): Promise<Stored | undefined> {
    if (range?.end === range?.start && range !== undefined) return undefined;
    const last = range?.end === undefined ? '' : range.end - 1;
    const asked = range === undefined ? {} : { Range: `bytes=${range.start}-${last}` };
    const request = new GetObjectCommand({ ...this.#target(key), ...asked });
    try {
      const answer = await this.#bucket.client.send(request, signal === undefined ? {} : { abortSignal: signal });
      if (!(answer.Body instanceof Readable)) throw new Error('the SDK gave no Node.js stream');
      return { ...answer, bytes: answer.Body };
    } catch (error) {
      if (isNoSuchKey(error)) throw missing(key);
      if (hasS3Code(error, 'InvalidRange')) return undefined;
      signal?.throwIfAborted();
      throw s3Error(error);
    }
  }

  async #emptyRange(key: string, range: GetOptions['range']): Promise<{ info: ObjectInfo; body: Readable }> {
    const info = await this.head(key);
    resolveRange(range, info.sizeBytes);
    return { info, body: Readable.from([]) };
  }

  async #head(key: string): Promise<HeadObjectCommandOutput | undefined> {
    try {
      return await this.#bucket.client.send(new HeadObjectCommand(this.#target(key)));
    } catch (error) {
      if (isNoSuchKey(error)) return undefined;
      throw s3Error(error);
    }
  }
}

interface StreamedPut {
  key: string;
  first: Part;
  rest: AsyncIterable<Part>;
  incoming: IncomingBody;
  options: PutOptions;
  stop: AbortController;
}

type Stored = GetObjectCommandOutput & { bytes: Readable };

const missing = (key: string): AppError => new AppError('not_found', `object "${key}" does not exist`);

async function* startingWith(first: Part, rest: AsyncIterable<Part>): AsyncGenerator<Part, void, undefined> {
  yield first;
  yield* rest;
}

/** With the info of the whole, its bytes are verified. A connection that breaks ends the body with an error of ours. */
function handOver(bytes: Readable, whole: ObjectInfo | undefined): Readable {
  const body = whole === undefined ? new PassThrough() : new VerifiedBody(whole);
  bytes.once('error', (error) => {
    const told = s3Error(error);
    body.destroy(told instanceof Error ? told : error);
  });
  pipeline(bytes, body, () => {}); // errors reach the reader of `body`
  return body;
}

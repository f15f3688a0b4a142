/** The object store in a directory: `objects/<key>` whole objects (object-file.ts), `tmp/` puts in progress. */
import { type FileHandle, mkdir, open, rm, stat, unlink } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { addAbortSignal, pipeline, Readable } from 'node:stream';
import { AppError, invalidField } from '@fuse/contract';
import { IncomingBody } from '../incoming-body.ts';
import { checkKey } from '../keys.ts';
import type { GetOptions, ObjectInfo, ObjectStore, PutOptions } from '../object-store.ts';
import { type ByteRange, resolveRange } from '../range.ts';
import { VerifiedBody } from '../verified-body.ts';
import { checkDirectory } from './check.ts';
import { filesBelow, prune, publish } from './directories.ts';
import { errorCode, isMissing, onDisk } from './disk-errors.ts';
import { temporaryName } from './leftovers.ts';
import { encodeTrailer, readTrailer, TRAILER_BYTES } from './object-file.ts';

const READ_CHUNK_BYTES = 262_144;

export class FileStore implements ObjectStore {
  readonly #directory: string;
  readonly #objects: string;
  readonly #temporary: string;

  constructor(directory: string) {
    this.#directory = resolve(directory);
    this.#objects = join(this.#directory, 'objects');
    this.#temporary = join(this.#directory, 'tmp');
  }

  check(): Promise<void> {
    return checkDirectory(this, this.#directory, this.#temporary);
  }

  async put(key: string, body: Readable | Uint8Array, options: PutOptions = {}): Promise<ObjectInfo> {
    const incoming = new IncomingBody(body, options);
    try {
      const path = this.#pathOf(key);
      await onDisk(mkdir(this.#temporary, { recursive: true, mode: 0o700 }));
      const temporary = join(this.#temporary, await temporaryName());
      try {
        const info = await writeWhole(temporary, key, incoming);
        options.signal?.throwIfAborted();
        await onDisk(publish(temporary, path, this.#directory));
        return info;
      } catch (error) {
        await rm(temporary, { force: true });
        throw error;
      }
    } finally {
      incoming.destroy();
    }
  }

  async get(key: string, { range, signal }: GetOptions = {}): Promise<{ info: ObjectInfo; body: Readable }> {
    signal?.throwIfAborted();
    const { file, info } = await this.#open(key);
    try {
      const part = resolveRange(range, info.sizeBytes);
      const bytes = await readRange(file, part);
      const body = part.whole ? verified(bytes, info) : bytes;
      return { info, body: signal === undefined ? body : addAbortSignal(signal, body) };
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  async head(key: string): Promise<ObjectInfo> {
    const { file, info } = await this.#open(key);
    await file.close();
    return info;
  }

  async delete(key: string): Promise<boolean> {
    const path = this.#pathOf(key);
    const deleted = await onDisk(unlinkIfThere(path));
    if (deleted) await onDisk(prune(dirname(path), this.#objects));
    return deleted;
  }

  async deletePrefix(prefix: string): Promise<{ objects: number; bytes: number }> {
    if (prefix === '') throw invalidField('prefix', 'must not be empty');
    const deleted = { objects: 0, bytes: 0 };
    const directories = new Set<string>();
    for await (const { key, sizeBytes } of this.list(prefix)) {
      const path = join(this.#objects, key);
      if (!(await onDisk(unlinkIfThere(path)))) continue; // another delete was first
      directories.add(dirname(path));
      deleted.objects += 1;
      deleted.bytes += sizeBytes;
    }
    for (const directory of directories) await onDisk(prune(directory, this.#objects));
    return deleted;
  }

  async *list(prefix: string): AsyncGenerator<{ key: string; sizeBytes: number }, void, undefined> {
    if (prefix !== '') checkKey(prefix, 'prefix');
    const directory = join(this.#objects, prefix);
    const files = filesBelow(directory);
    try {
      for (;;) {
        const { value, done } = await onDisk(files.next());
        if (done) return;
        const found = await onDisk(statIfThere(join(directory, value)));
        if (found === undefined) continue;
        const key = prefix === '' ? value : `${prefix}/${value}`;
        yield { key, sizeBytes: Math.max(0, found.size - TRAILER_BYTES) };
      }
    } finally {
      await files.return();
    }
  }

  async presignGet(): Promise<undefined> {
    return undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {}

  #pathOf(key: string): string {
    checkKey(key);
    return join(this.#objects, key);
  }

  async #open(key: string): Promise<{ file: FileHandle; info: ObjectInfo }> {
    const path = this.#pathOf(key);
    const missing = new AppError('not_found', `object "${key}" does not exist`);
    const file = await open(path, 'r').catch((error: unknown) => {
      if (isMissing(error)) throw missing;
      return onDisk<never>(Promise.reject(error));
    });
    try {
      const stats = await onDisk(file.stat());
      if (!stats.isFile()) throw missing;
      return { file, info: await onDisk(readTrailer(file, stats.size, key)) };
    } catch (error) {
      await file.close();
      throw error;
    }
  }
}

/** Flushed when it resolves. */
async function writeWhole(path: string, key: string, incoming: IncomingBody): Promise<ObjectInfo> {
  const file = await onDisk(open(path, 'wx', 0o600));
  try {
    for await (const chunk of incoming.chunks()) await onDisk(file.writeFile(chunk));
    const info = incoming.info(key);
    await onDisk(file.writeFile(encodeTrailer(info)));
    await onDisk(file.sync());
    return info;
  } finally {
    await file.close();
  }
}

function verified(bytes: Readable, info: ObjectInfo): Readable {
  const body = new VerifiedBody(info);
  pipeline(bytes, body, () => {}); // errors reach the reader of `body`
  return body;
}

/** Closes the file at its end or when destroyed. */
async function readRange(file: FileHandle, { start, end }: ByteRange): Promise<Readable> {
  if (start < end) return file.createReadStream({ start, end: end - 1, highWaterMark: READ_CHUNK_BYTES });
  await file.close();
  return Readable.from([]);
}

const unlinkIfThere = (path: string) =>
  unlink(path).then(
    () => true,
    (error: unknown) => {
      if (isMissing(error) || errorCode(error) === 'EISDIR') return false;
      throw error;
    },
  );

const statIfThere = (path: string) =>
  stat(path).catch((error: unknown) => {
    if (isMissing(error)) return undefined;
    throw error;
  });

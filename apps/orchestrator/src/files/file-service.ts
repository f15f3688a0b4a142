/** Uploads that runs take as inputs. The row exists once the bytes are safe; an upload that is cut leaves nothing. */

import type { Readable } from 'node:stream';
import { AppError, invalidField, type UploadedFile } from '@fuse/contract';
import type { ObjectStore } from '@fuse/object-store';
import { newId } from '@fuse/runtime';
import type { Db } from '../db/db.ts';
import type { IdempotentRequest } from '../idempotency/idempotency-key.ts';
import { findAnswer } from '../idempotency/idempotency-store.ts';
import { makeOnce } from '../idempotency/make-once.ts';
import { outputBytesLeft, requireOutputBytes } from '../quotas/take-quota.ts';
import { requireEnabled } from '../tenants/tenant-store.ts';
import { deleteFile, findFile, insertFile, toUploadedFile } from './file-store.ts';

export const DEFAULT_MAX_FILE_BYTES = 10 * 1024 ** 3;
export const DEFAULT_FILE_LIFETIME_MS = 86_400_000;

export interface FileServiceOptions {
  db: Db;
  objectStore: ObjectStore;
  maxFileBytes: number;
  lifetimeMs: number;
}

export interface Upload {
  tenantId: string;
  body: Readable | Uint8Array;
  /** What the client says its bytes are, and where it says so. */
  expected: { sha256: string; field: string } | undefined;
  /** Content-Length; undefined: not known. */
  declaredBytes: number | undefined;
  /** By the sum of the bytes, which is what makes two uploads the same. */
  idempotent: (sha256: string) => IdempotentRequest | undefined;
  signal: AbortSignal;
}

export class FileService {
  readonly #options: FileServiceOptions;

  constructor(options: FileServiceOptions) {
    this.#options = options;
  }

  get maxFileBytes(): number {
    return this.#options.maxFileBytes;
  }

  /**
   * 403 when its tenant is disabled, 413 when it is longer than any may be, 429 when its tenant has no room for it. Under a key that was used already the bytes are taken in to learn their sum, unless
   * the client says it, and then dropped.
   */
  async upload(upload: Upload): Promise<{ answer: UploadedFile; replayed: boolean }> {
    const { tenantId, body, expected, declaredBytes = 0, signal } = upload;
    const { db, objectStore, maxFileBytes, lifetimeMs } = this.#options;
    const declared = expected === undefined ? undefined : upload.idempotent(expected.sha256);
    const earlier = declared === undefined ? undefined : await findAnswer(db.query, declared);
    if (earlier !== undefined) return { answer: earlier.response as UploadedFile, replayed: true }; // recorded below
    await requireEnabled(db.query, tenantId);
    const id = newId('file');
    const objectKey = `files/${id}`;
    const left = (await outputBytesLeft(db.query, tenantId)) ?? maxFileBytes;
    if (declaredBytes > left || left === 0) await this.#refuse(tenantId, Math.max(1, declaredBytes));
    const stored = await objectStore
      .put(objectKey, body, {
        maxBytes: Math.min(left, maxFileBytes),
        signal,
        ...(expected === undefined ? {} : { expectedSha256: expected.sha256 }),
      })
      .catch(async (error: unknown) => {
        if (left < maxFileBytes && isTooLarge(error)) await this.#refuse(tenantId, left + 1);
        if (expected !== undefined && error instanceof AppError && error.code === 'integrity_error')
          throw invalidField(expected.field, 'is not the sum of the bytes that came', 'send the file again');
        throw error;
      });
    try {
      const { sizeBytes, sha256 } = stored;
      const made = await makeOnce(db, upload.idempotent(sha256), {
        resourceId: id,
        make: async (tx) => {
          await requireOutputBytes(tx, tenantId, sizeBytes);
          return toUploadedFile(await insertFile(tx, { id, tenantId, objectKey, sizeBytes, sha256 }, lifetimeMs));
        },
        kept: (file) => file,
      });
      if (made.replayed) await objectStore.delete(objectKey).catch(() => {}); // swept later
      return made;
    } catch (error) {
      await objectStore.delete(objectKey).catch(() => {}); // swept later; the first error is the one to tell
      throw error;
    }
  }

  /** Throws unless there is room by now: then it may be sent again. */
  async #refuse(tenantId: string, bytes: number): Promise<never> {
    await this.#options.db.transaction((tx) => requireOutputBytes(tx, tenantId, bytes));
    throw new AppError('unavailable', 'other uploads had taken the room that is there now', { retryAfterSeconds: 1 });
  }

  async get(tenantId: string, id: string): Promise<UploadedFile> {
    const row = await findFile(this.#options.db.query, tenantId, id);
    if (row === undefined) throw fileNotFound(id);
    return toUploadedFile(row);
  }

  /** Runs that use it and have not read it yet fail with `input_failed`. */
  async delete(tenantId: string, id: string): Promise<void> {
    const objectKey = await deleteFile(this.#options.db.query, tenantId, id);
    if (objectKey === undefined) throw fileNotFound(id);
    await this.#options.objectStore.delete(objectKey);
  }
}

export const isTooLarge = (error: unknown): boolean => error instanceof AppError && error.code === 'payload_too_large';

const fileNotFound = (id: string): AppError => new AppError('not_found', `file ${id} not found`);

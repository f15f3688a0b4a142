/**
 * Deletes chunks that no snapshot refers to, with their objects. Safe against exports that want the same chunk and when killed anywhere:
 * 1. the chunk is marked as not stored and that is committed: whoever refers to it from then on uploads it again;
 * 2. under its row's lock, and still referred to by nobody, the object is deleted, then the row. An export that comes now waits for
 *    the lock and finds no row.
 * Who refers to it is asked in a statement after the one that locked: only that one sees references made while it waited for the lock.
 */
import { AppError } from '@fuse/contract';
import type { ObjectStore } from '@fuse/object-store';
import { sql } from 'kysely';
import type { Db, Tx } from '../../db/db.ts';
import { chunkKey } from './chunk-keys.ts';

export interface CollectContext {
  db: Db;
  objectStore: ObjectStore;
}

export interface Collected {
  objects: number;
  bytes: number;
}

/** One transaction holds so many rows while their objects are deleted. */
const BATCH = 64;
const DELETES_AT_ONCE = 8;
/** The database ends a transaction that idles for a minute, and with it the locks: no deletion begins that late. */
const MAX_HOLD_MS = 30_000;

/** All there are, or only those of `among`. A chunk that another process works on is left to it. */
export async function collectChunks(
  context: CollectContext,
  { among, signal }: { among?: readonly string[]; signal?: AbortSignal } = {},
): Promise<Collected> {
  const total: Collected = { objects: 0, bytes: 0 };
  const queue = [...new Set(among)].sort();
  for (;;) {
    signal?.throwIfAborted();
    const wanted = among === undefined ? undefined : queue.splice(0, BATCH);
    if (wanted?.length === 0) return total;
    const doomed = await context.db.transaction((tx) => forget(tx, wanted));
    const collected =
      doomed.length === 0 ? undefined : await context.db.transaction((tx) => remove(tx, context, doomed));
    total.objects += collected?.objects ?? 0;
    total.bytes += collected?.bytes ?? 0;
    // Nothing came of a whole batch: its rows are somebody else's work.
    if (wanted === undefined && (collected?.rows ?? 0) === 0) return total;
  }
}

/** Step 1. */
async function forget(tx: Tx, among: readonly string[] | undefined): Promise<string[]> {
  const doomed = (await lockUnreferred(tx, among)).map(({ sha256 }) => sha256);
  if (doomed.length > 0)
    await tx
      .updateTable('chunks')
      .set({ is_stored: false })
      .where('sha256', 'in', doomed)
      .where('is_stored', '=', true)
      .execute();
  return doomed;
}

/** Step 2. Run again after a deadlock, it finds the same rows. */
async function remove(
  tx: Tx,
  { objectStore }: CollectContext,
  among: readonly string[],
): Promise<Collected & { rows: number }> {
  const doomed = await lockUnreferred(tx, among);
  const collected = { objects: 0, bytes: 0, rows: doomed.length };
  const queue = doomed.values();
  const until = performance.now() + MAX_HOLD_MS;
  const work = async () => {
    for (const { sha256, stored_bytes } of queue) {
      if (performance.now() > until)
        throw new AppError('unavailable', 'the object store is too slow to collect chunks');
      const key = chunkKey(sha256);
      // Of one that was uploaded and never recorded, only the store knows.
      const bytes = stored_bytes ?? (await sizeOf(objectStore, key));
      await objectStore.delete(key);
      if (bytes === undefined) continue;
      collected.objects += 1;
      collected.bytes += bytes;
    }
  };
  await Promise.all(Array.from({ length: DELETES_AT_ONCE }, work));
  if (doomed.length > 0)
    await tx
      .deleteFrom('chunks')
      .where(
        'sha256',
        'in',
        doomed.map(({ sha256 }) => sha256),
      )
      .execute();
  return collected;
}

interface UnreferredChunk {
  sha256: string;
  stored_bytes: number | null;
}

async function lockUnreferred(tx: Tx, among: readonly string[] | undefined): Promise<UnreferredChunk[]> {
  const locked = await tx
    .selectFrom('chunks')
    .select(['sha256', 'stored_bytes'])
    .where(sql<boolean>`not exists (select from snapshot_chunks r where r.sha256 = chunks.sha256)`)
    .$if(among !== undefined, (query) => query.where('sha256', 'in', [...(among ?? [])]))
    .orderBy('sha256')
    .limit(BATCH)
    .forUpdate()
    .skipLocked()
    .execute();
  if (locked.length === 0) return [];
  const referred = await tx
    .selectFrom('snapshot_chunks')
    .select('sha256')
    .distinct()
    .where(
      'sha256',
      'in',
      locked.map(({ sha256 }) => sha256),
    )
    .execute();
  const kept = new Set(referred.map(({ sha256 }) => sha256));
  return locked.filter(({ sha256 }) => !kept.has(sha256));
}

async function sizeOf(objectStore: ObjectStore, key: string): Promise<number | undefined> {
  try {
    return (await objectStore.head(key)).sizeBytes;
  } catch (error) {
    if (error instanceof AppError && error.code === 'not_found') return undefined;
    throw error;
  }
}

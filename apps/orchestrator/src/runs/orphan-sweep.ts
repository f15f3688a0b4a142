/**
 * Objects whose run or upload has no row: a process died between writing them and committing, or between deleting the row and them.
 * Ids carry the time they were made, so what is still being written is told apart by age.
 */
import type { ObjectStore } from '@fuse/object-store';
import type { Db, Queryable } from '../db/db.ts';
import { ownerOf } from './object-keys.ts';

const MIN_AGE_MS = 2 * 86_400_000;
const BATCH = 500;

export async function sweepOrphans(
  { db, objectStore, nowMs }: { db: Db; objectStore: ObjectStore; nowMs: number },
  signal: AbortSignal,
): Promise<number> {
  let swept = 0;
  const sweep = async (batch: { key: string; owner: string }[]) => {
    const alive = await existing(db.query, [...new Set(batch.map(({ owner }) => owner))]);
    for (const { key, owner } of batch) if (!alive.has(owner) && (await objectStore.delete(key))) swept += 1;
  };
  for (const prefix of ['runs', 'files']) {
    let batch: { key: string; owner: string }[] = [];
    for await (const { key } of objectStore.list(prefix)) {
      signal.throwIfAborted();
      const owner = ownerOf(key);
      if (owner === undefined || nowMs - owner.createdMs < MIN_AGE_MS) continue;
      batch.push({ key, owner: owner.id });
      if (batch.length < BATCH) continue;
      await sweep(batch);
      batch = [];
    }
    await sweep(batch);
  }
  return swept;
}

async function existing(query: Queryable, ids: string[]): Promise<Set<string>> {
  if (ids.length === 0) return new Set();
  const [runs, files] = await Promise.all([
    query.selectFrom('runs').select('id').where('id', 'in', ids).execute(),
    query.selectFrom('files').select('id').where('id', 'in', ids).execute(),
  ]);
  return new Set([...runs, ...files].map(({ id }) => id));
}

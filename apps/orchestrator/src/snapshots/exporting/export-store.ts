/**
 * The rows of an export. Every function that writes runs under the snapshot's row lock and only for the one that holds its lease, so
 * that a late driver, or one whose snapshot was deleted, changes nothing.
 */
import { snapshotCanBecome } from '@fuse/contract';
import { sql } from 'kysely';
import { inMs, now, type Tx } from '../../db/db.ts';
import type { SnapshotRow } from '../../db/schema.ts';
import { transitionSnapshot } from '../snapshot-store.ts';
import { manifestKey } from './chunk-keys.ts';

const BATCH = 2_000;

export class LostExport extends Error {
  override readonly name = 'LostExport';
}

export interface Held {
  snapshotId: string;
  owner: string;
}

export interface StoredChunk {
  sha256: string;
  stored_bytes: number;
}

/**
 * Refers to the chunks before any is uploaded; from then on none of them is collected. A chunk that is being collected is waited for,
 * and is missing then. `isResumed`: an earlier try came this far, so that some of what is missing may be there.
 */
export async function referToChunks(
  tx: Tx,
  held: Held,
  sha256s: readonly string[],
): Promise<{ missing: string[]; isResumed: boolean }> {
  await holdExport(tx, held);
  const earlier = await tx
    .selectFrom('snapshot_chunks')
    .select('sha256')
    .where('snapshot_id', '=', held.snapshotId)
    .limit(1)
    .executeTakeFirst();
  // In one order, so that exports which share chunks wait for each other and never in a circle.
  for (const batch of batches([...new Set(sha256s)].sort())) {
    const values = sql`jsonb_array_elements_text(${JSON.stringify(batch)}::jsonb) as wanted (sha256)`;
    // `do nothing` would not wait for a collector that is about to delete the row.
    await sql`insert into chunks (sha256) select sha256 from ${values} order by sha256
      on conflict (sha256) do update set sha256 = excluded.sha256`.execute(tx);
    await sql`insert into snapshot_chunks (snapshot_id, sha256) select ${held.snapshotId}::text, sha256 from ${values}
      on conflict do nothing`.execute(tx);
  }
  return { missing: await chunksNotStored(tx, held.snapshotId), isResumed: earlier !== undefined };
}

/** Counts to the snapshot's exported bytes what nobody else has marked before. */
export async function markStored(tx: Tx, held: Held, stored: readonly StoredChunk[]): Promise<void> {
  await holdExport(tx, held);
  let added = 0;
  for (const batch of batches(stored)) {
    const { rows } = await sql<{ stored_bytes: number }>`
      update chunks set is_stored = true, stored_bytes = uploaded.stored_bytes
      from jsonb_to_recordset(${JSON.stringify(batch)}::jsonb) as uploaded (sha256 text, stored_bytes bigint)
      where chunks.sha256 = uploaded.sha256 and not chunks.is_stored
        and exists (select from snapshot_chunks r where r.snapshot_id = ${held.snapshotId} and r.sha256 = chunks.sha256)
      returning chunks.stored_bytes`.execute(tx);
    added += rows.reduce((sum, { stored_bytes }) => sum + stored_bytes, 0);
  }
  await addExportedBytes(tx, held, added);
}

/** The last step: all its chunks are stored, and so is its manifest. */
export async function completeExport(
  tx: Tx,
  held: Held,
  { uploaded, manifestBytes }: { uploaded: readonly StoredChunk[]; manifestBytes: number },
): Promise<void> {
  await markStored(tx, held, uploaded);
  const missing = await chunksNotStored(tx, held.snapshotId);
  if (missing.length > 0) throw new Error(`the host did not upload ${missing.length} chunks that it was asked for`);
  await addExportedBytes(tx, held, manifestBytes);
  await tx
    .updateTable('snapshots')
    .set({
      export_state: 'done',
      export_error: null,
      manifest_key: manifestKey(held.snapshotId),
      lease_owner: null,
      lease_until: null,
      updated_at: now,
    })
    .where('id', '=', held.snapshotId)
    .execute();
}

/** Another try after `retryMs`; without it, none. `isDamaged`: its host found out that the snapshot itself is not what it was. */
export async function recordFailedExport(
  tx: Tx,
  held: Held,
  { message, retryMs, isDamaged }: { message: string; retryMs: number | undefined; isDamaged: boolean },
): Promise<void> {
  const row = await holdExport(tx, held);
  await tx
    .updateTable('snapshots')
    .set({
      export_state: retryMs === undefined ? 'error' : 'pending',
      export_error: message,
      export_tries: sql<number>`export_tries + 1`,
      lease_owner: null,
      lease_until: retryMs === undefined ? null : inMs(retryMs),
      updated_at: now,
    })
    .where('id', '=', held.snapshotId)
    .execute();
  // Its host says so of the bytes that it has, and there are no others yet.
  if (isDamaged && snapshotCanBecome(row.state, 'error'))
    await transitionSnapshot(tx, row, 'error', { error: message });
}

async function holdExport(tx: Tx, { snapshotId, owner }: Held): Promise<Pick<SnapshotRow, 'id' | 'state' | 'version'>> {
  const row = await tx
    .selectFrom('snapshots')
    .select(['id', 'state', 'version'])
    .where('id', '=', snapshotId)
    .where('lease_owner', '=', owner)
    .where('export_state', '=', 'running')
    .forUpdate()
    .executeTakeFirst();
  if (row === undefined) throw new LostExport(`the export of snapshot ${snapshotId} is not this process's any more`);
  return row;
}

async function chunksNotStored(tx: Tx, snapshotId: string): Promise<string[]> {
  const rows = await tx
    .selectFrom('snapshot_chunks')
    .innerJoin('chunks', 'chunks.sha256', 'snapshot_chunks.sha256')
    .select('chunks.sha256')
    .where('snapshot_id', '=', snapshotId)
    .where('is_stored', '=', false)
    .execute();
  return rows.map(({ sha256 }) => sha256);
}

async function addExportedBytes(tx: Tx, { snapshotId }: Held, bytes: number): Promise<void> {
  await tx
    .updateTable('snapshots')
    .set({ exported_bytes: sql<number>`coalesce(exported_bytes, 0) + ${bytes}::bigint` })
    .where('id', '=', snapshotId)
    .execute();
}

function* batches<T>(items: readonly T[]): Generator<readonly T[]> {
  for (let at = 0; at < items.length; at += BATCH) yield items.slice(at, at + BATCH);
}

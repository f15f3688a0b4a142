/**
 * Objects that no row knows: a host that did not hear in time that its export is over wrote them, or a process died between deleting the
 * snapshot and its manifest. A chunk gets a row, without a reference, and goes the way of every other one (collect-chunks.ts): so an export
 * that wants it at this moment is in no danger. Manifests carry their snapshot's id, which never comes again.
 */
import { sql } from 'kysely';
import { CHUNK_PREFIX, chunkAt, MANIFEST_PREFIX, snapshotOfManifest } from './chunk-keys.ts';
import { type CollectContext, type Collected, collectChunks } from './collect-chunks.ts';

const BATCH = 500;

export async function sweepStore(context: CollectContext, signal: AbortSignal): Promise<Collected> {
  await adoptChunks(context, signal);
  const chunks = await collectChunks(context, { signal });
  const manifests = await sweepManifests(context, signal);
  return { objects: chunks.objects + manifests.objects, bytes: chunks.bytes + manifests.bytes };
}

async function adoptChunks({ db, objectStore }: CollectContext, signal: AbortSignal): Promise<void> {
  let batch: { sha256: string; stored_bytes: number }[] = [];
  const adopt = async () => {
    if (batch.length === 0) return;
    await sql`insert into chunks (sha256, stored_bytes)
      select sha256, stored_bytes from jsonb_to_recordset(${JSON.stringify(batch)}::jsonb) as found (sha256 text, stored_bytes bigint)
      order by sha256 on conflict do nothing`.execute(db.query);
    batch = [];
  };
  for await (const { key, sizeBytes } of objectStore.list(CHUNK_PREFIX)) {
    signal.throwIfAborted();
    const sha256 = chunkAt(key);
    if (sha256 === undefined) continue;
    batch.push({ sha256, stored_bytes: sizeBytes });
    if (batch.length >= BATCH) await adopt();
  }
  await adopt();
}

async function sweepManifests({ db, objectStore }: CollectContext, signal: AbortSignal): Promise<Collected> {
  const swept: Collected = { objects: 0, bytes: 0 };
  let batch: { key: string; id: string; sizeBytes: number }[] = [];
  const sweep = async () => {
    if (batch.length === 0) return;
    const ids = batch.map(({ id }) => id);
    const rows = await db.query.selectFrom('snapshots').select('id').where('id', 'in', ids).execute();
    const alive = new Set(rows.map(({ id }) => id));
    for (const { key, id, sizeBytes } of batch) {
      if (alive.has(id) || !(await objectStore.delete(key))) continue;
      swept.objects += 1;
      swept.bytes += sizeBytes;
    }
    batch = [];
  };
  for await (const { key, sizeBytes } of objectStore.list(MANIFEST_PREFIX)) {
    signal.throwIfAborted();
    const id = snapshotOfManifest(key);
    if (id === undefined) continue;
    batch.push({ key, id, sizeBytes });
    if (batch.length >= BATCH) await sweep();
  }
  await sweep();
  return swept;
}

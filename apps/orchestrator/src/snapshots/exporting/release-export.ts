/** What becomes of an export when its snapshot is deleted: references go in the deletion's transaction, bytes after it. */
import { AppError } from '@fuse/contract';
import type { Tx } from '../../db/db.ts';
import { manifestKey } from './chunk-keys.ts';
import { type CollectContext, type Collected, collectChunks } from './collect-chunks.ts';

export interface ReleasedExport {
  manifestKey: string;
  /** They may be other snapshots' too. */
  chunks: string[];
}

/** Ends the export, done or under way; whoever drives it finds that out and stops. */
export async function releaseExport(tx: Tx, snapshotId: string): Promise<ReleasedExport> {
  await tx
    .updateTable('snapshots')
    .set({ export_state: 'none', export_error: null, manifest_key: null, exported_bytes: null })
    .where('id', '=', snapshotId)
    .execute();
  const rows = await tx
    .deleteFrom('snapshot_chunks')
    .where('snapshot_id', '=', snapshotId)
    .returning('sha256')
    .execute();
  return { manifestKey: manifestKey(snapshotId), chunks: rows.map(({ sha256 }) => sha256) };
}

/** Once the release is committed. Without it, or when it fails midway, the collector does the rest. */
export async function deleteReleased(
  context: CollectContext,
  { manifestKey: key, chunks }: ReleasedExport,
  signal?: AbortSignal,
): Promise<Collected> {
  const manifest = await context.objectStore.head(key).catch((error: unknown) => {
    if (error instanceof AppError && error.code === 'not_found') return undefined;
    throw error;
  });
  if (manifest !== undefined) await context.objectStore.delete(key);
  const collected = await collectChunks(context, { among: chunks, ...(signal === undefined ? {} : { signal }) });
  return {
    objects: collected.objects + (manifest === undefined ? 0 : 1),
    bytes: collected.bytes + (manifest?.sizeBytes ?? 0),
  };
}

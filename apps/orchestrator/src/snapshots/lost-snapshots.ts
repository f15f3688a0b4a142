/** Snapshots whose bytes on a host are no more. In the object store they live on; the others are errors. */
import type { Tx } from '../db/db.ts';
import type { SnapshotRow } from '../db/schema.ts';
import { lockSnapshot, transitionSnapshot } from './snapshot-store.ts';

export async function lostOnHost(tx: Tx, { id, host_id }: SnapshotRow, reason: string): Promise<void> {
  const row = await lockSnapshot(tx, id, 'update');
  if (row === undefined || row.host_id !== host_id || row.state === 'deleting' || row.state === 'error') return;
  if (row.manifest_key === null || row.state === 'creating')
    await transitionSnapshot(tx, row, 'error', { error: reason });
  else await tx.updateTable('snapshots').set({ host_id: null }).where('id', '=', id).execute();
}

/** The host is taken out of the registry, in the caller's transaction. */
export async function loseHost(tx: Tx, hostId: string): Promise<void> {
  const rows = await tx.selectFrom('snapshots').selectAll().where('host_id', '=', hostId).orderBy('id').execute();
  for (const row of rows) await lostOnHost(tx, row, 'host lost');
}

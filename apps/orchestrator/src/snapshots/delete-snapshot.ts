/**
 * Any state -> `deleting` (committed) -> its bytes gone from its host -> the row and its references to the object store gone -> chunks that nobody
 * refers to any more gone. Begun by one process, it may be finished by another.
 */
import { AppError } from '@fuse/contract';
import type { SnapshotRow } from '../db/schema.ts';
import { persistently } from '../hosts/host-retries.ts';
import { isCollectable } from './due.ts';
import { deleteReleased, type ReleasedExport, releaseExport } from './exporting/release-export.ts';
import type { SnapshotContext } from './snapshot-context.ts';
import { hasChildren, lockSnapshot, removeSnapshot, transitionSnapshot } from './snapshot-store.ts';

export interface Freed {
  hostBytes: number;
  storeBytes: number;
}

/** Undefined: there is none (any more). 409 when another names it as its parent, unless forced. */
export async function markDeleting(
  context: SnapshotContext,
  id: string,
  { force, tenantId }: { force: boolean; tenantId?: string },
): Promise<SnapshotRow | undefined> {
  return context.db.transaction(async (tx) => {
    const row = await lockSnapshot(tx, id, 'update');
    if (row === undefined || (tenantId !== undefined && row.tenant_id !== tenantId)) return undefined;
    if (row.state === 'deleting') return row;
    if (!force && (await hasChildren(tx, id)))
      throw new AppError('conflict', `snapshot ${id} has children: another snapshot names it as its parent`, {
        details: { reason: 'has_children' },
        hint: 'Delete those first, or pass ?force=true: they lose nothing by it.',
      });
    return transitionSnapshot(tx, row, 'deleting');
  });
}

/** False: it is not over its time any more, or something starts from it right now. Whoever admits a start holds the row. */
export async function markExpired(context: SnapshotContext, id: string): Promise<boolean> {
  return context.db.transaction(async (tx) => {
    const row = await lockSnapshot(tx, id, 'update');
    const due = await tx
      .selectFrom('snapshots')
      .select('id')
      .where('id', '=', id)
      .where(isCollectable)
      .executeTakeFirst();
    if (row === undefined || due === undefined) return false;
    return (await transitionSnapshot(tx, row, 'deleting')) !== undefined;
  });
}

/** `row` is deleting. `unavailable` when its host cannot be reached: the reconciler goes on with it. */
export async function finishDeleting(context: SnapshotContext, row: SnapshotRow): Promise<Freed> {
  const hostBytes = row.host_id === null ? 0 : await deleteOnHost(context, row.host_id, row.id);
  const released = await context.db.transaction(async (tx): Promise<ReleasedExport | undefined> => {
    const release = await releaseExport(tx, row.id);
    return (await removeSnapshot(tx, row)) ? release : undefined;
  });
  if (released === undefined) return { hostBytes, storeBytes: 0 }; // by another
  const collected = await deleteReleased(context, released).catch((error: unknown) => {
    context.log.warn({ err: error, snapshot_id: row.id }, 'chunks of a deleted snapshot are left to the collector');
    return { bytes: 0 };
  });
  return { hostBytes, storeBytes: collected.bytes };
}

async function deleteOnHost(context: SnapshotContext, hostId: string, id: string): Promise<number> {
  const client = await context.hosts.client(hostId);
  const call = () => client.deleteSnapshot(id, context.stopping);
  return (await persistently(context.hostRetryMs, call, context.stopping)).freed_bytes;
}

/** The rows of snapshots. Every change of state is a compare-and-set with its event in one transaction. */
import { type SnapshotState, snapshotCanBecome } from '@fuse/contract';
import { type Insertable, sql, type Updateable } from 'kysely';
import { inMs, now, type Queryable, type Tx } from '../db/db.ts';
import type { SnapshotRow, SnapshotsTable } from '../db/schema.ts';
import { recordEvent } from '../events/events.ts';

export interface SnapshotChange {
  error?: string;
  /** Other columns, set with the state. */
  columns?: Omit<Updateable<SnapshotsTable>, 'id' | 'state' | 'version'>;
}

export async function insertSnapshot(tx: Tx, values: Insertable<SnapshotsTable>): Promise<SnapshotRow> {
  const row = await tx.insertInto('snapshots').values(values).returningAll().executeTakeFirstOrThrow();
  await recordSnapshot(tx, row.id, row.state);
  return row;
}

/** `row` becomes `to` if nobody changed it since it was read; undefined when somebody did. The lease of its taking ends with that. */
export async function transitionSnapshot(
  tx: Tx,
  row: Pick<SnapshotRow, 'id' | 'state' | 'version'>,
  to: SnapshotState,
  { error, columns }: SnapshotChange = {},
): Promise<SnapshotRow | undefined> {
  if (!snapshotCanBecome(row.state, to)) throw new Error(`snapshot ${row.id}: ${row.state} cannot become ${to}`);
  const changed = await tx
    .updateTable('snapshots')
    .set({
      state: to,
      version: sql<number>`version + 1`,
      updated_at: now,
      ...(row.state === 'creating' ? { lease_owner: null, lease_until: null } : {}), // else an export's
      ...(error === undefined ? {} : { last_error: error }),
      ...columns,
    })
    .where('id', '=', row.id)
    .where('version', '=', row.version)
    .where('state', '=', row.state)
    .returningAll()
    .executeTakeFirst();
  if (changed !== undefined) await recordSnapshot(tx, changed.id, to, error);
  return changed;
}

/** The end of a `deleting` one, or of one that never came to be. What was taken after it follows on what came before it. */
export async function removeSnapshot(
  tx: Tx,
  row: Pick<SnapshotRow, 'id' | 'version' | 'parent_snapshot_id'>,
): Promise<boolean> {
  const removed = await tx
    .deleteFrom('snapshots')
    .where('id', '=', row.id)
    .where('version', '=', row.version)
    .returning('id')
    .executeTakeFirst();
  if (removed === undefined) return false;
  await tx
    .updateTable('snapshots')
    .set({ parent_snapshot_id: row.parent_snapshot_id })
    .where('parent_snapshot_id', '=', row.id)
    .execute();
  await recordSnapshot(tx, row.id, 'deleted');
  return true;
}

async function recordSnapshot(tx: Tx, id: string, state: SnapshotState | 'deleted', error?: string): Promise<void> {
  const data = { state, ...(error === undefined ? {} : { error }) };
  await recordEvent(tx, { subjectKind: 'snapshot', subjectId: id, kind: 'state', data });
}

export function snapshotById(db: Queryable, id: string): Promise<SnapshotRow | undefined> {
  return db.selectFrom('snapshots').selectAll().where('id', '=', id).executeTakeFirst();
}

/** Held until the transaction ends: nobody changes it (`share`), or nobody else even reads it for that (`update`). */
export function lockSnapshot(tx: Tx, id: string, mode: 'share' | 'update'): Promise<SnapshotRow | undefined> {
  const query = tx.selectFrom('snapshots').selectAll().where('id', '=', id);
  return (mode === 'share' ? query.forShare() : query.forUpdate()).executeTakeFirst();
}

/** True when the lease is `owner`'s now: it was already, or the former one's time is up. */
export async function takeSnapshotLease(db: Queryable, id: string, owner: string, ms: number): Promise<boolean> {
  const row = await db
    .updateTable('snapshots')
    .set({ lease_owner: owner, lease_until: inMs(ms) })
    .where('id', '=', id)
    .where('state', '=', 'creating')
    .where((eb) => eb.or([eb('lease_owner', '=', owner), eb('lease_until', '<', now), eb('lease_until', 'is', null)]))
    .returning('id')
    .executeTakeFirst();
  return row !== undefined;
}

/** Anybody may take it at once. */
export async function releaseSnapshotLease(db: Queryable, id: string, owner: string): Promise<void> {
  await db
    .updateTable('snapshots')
    .set({ lease_until: now })
    .where('id', '=', id)
    .where('state', '=', 'creating')
    .where('lease_owner', '=', owner)
    .execute();
}

/** The newest one of this environment that another may follow on, or what the environment itself began as. */
export async function parentOf(
  tx: Tx,
  environment: { uid: string; seed_snapshot_id: string | null },
): Promise<string | null> {
  const newest = await tx
    .selectFrom('snapshots')
    .select('id')
    .where('environment_uid', '=', environment.uid)
    .where('state', 'in', ['ready', 'restoring'])
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .limit(1)
    .executeTakeFirst();
  const id = newest?.id ?? environment.seed_snapshot_id;
  if (id === null) return null;
  // Held, so that it is not deleted as a leaf meanwhile.
  const parent = await lockSnapshot(tx, id, 'share');
  return parent === undefined || parent.state === 'deleting' || parent.state === 'error' ? null : parent.id;
}

export async function hasChildren(db: Queryable, id: string): Promise<boolean> {
  const child = await db
    .selectFrom('snapshots')
    .select('id')
    .where('parent_snapshot_id', '=', id)
    .where('state', '!=', 'deleting')
    .limit(1)
    .executeTakeFirst();
  return child !== undefined;
}

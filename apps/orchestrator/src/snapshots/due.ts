/** Queries for what is due. Each names rows that somebody else may change meanwhile: acting on them is a compare-and-set. */
import { sql } from 'kysely';
import type { Queryable } from '../db/db.ts';
import type { EnvironmentRow, SnapshotRow } from '../db/schema.ts';

const BATCH = 100;

/** Creating, and whoever drove that is gone. */
export function abandonedTakings(db: Queryable): Promise<SnapshotRow[]> {
  return db
    .selectFrom('snapshots')
    .selectAll()
    .where('state', '=', 'creating')
    .where(sql<boolean>`coalesce(lease_until, created_at) < now()`)
    .orderBy('created_at')
    .limit(BATCH)
    .execute();
}

export function deleting(db: Queryable): Promise<Pick<SnapshotRow, 'id'>[]> {
  return db
    .selectFrom('snapshots')
    .select('id')
    .where('state', '=', 'deleting')
    .orderBy('updated_at')
    .limit(BATCH)
    .execute();
}

/** Restored in place, and whoever drove that is gone. */
export function abandonedRestores(db: Queryable): Promise<EnvironmentRow[]> {
  return db
    .selectFrom('environments')
    .selectAll()
    .where('state', '=', 'resuming')
    .where('restore_id', 'is not', null)
    .where(sql<boolean>`coalesce(lease_until, updated_at) < now()`)
    .orderBy('updated_at')
    .limit(BATCH)
    .execute();
}

/** `restoring`, though the environment of that restore was destroyed or lost meanwhile. */
export function strandedRestoring(db: Queryable): Promise<SnapshotRow[]> {
  return db
    .selectFrom('snapshots')
    .selectAll()
    .where('state', '=', 'restoring')
    .where(
      sql<boolean>`not exists (select from environments e where e.restore_snapshot_id = snapshots.id and e.state = 'resuming')`,
    )
    .limit(BATCH)
    .execute();
}

/** Over their time, and nothing starts from them right now. */
export const isCollectable = sql<boolean>`snapshots.state in ('ready', 'error') and snapshots.retention_until < now()
  and not exists (select from environments e where e.seed_snapshot_id = snapshots.id and e.state = 'provisioning')`;

export function expiredSnapshots(db: Queryable): Promise<Pick<SnapshotRow, 'id'>[]> {
  return db.selectFrom('snapshots').select('id').where(isCollectable).orderBy('retention_until').limit(BATCH).execute();
}

/** Should be whole on this host. */
export function expectedOnHost(db: Queryable, hostId: string): Promise<SnapshotRow[]> {
  return db
    .selectFrom('snapshots')
    .selectAll()
    .where('host_id', '=', hostId)
    .where('state', 'in', ['ready', 'restoring'])
    .execute();
}

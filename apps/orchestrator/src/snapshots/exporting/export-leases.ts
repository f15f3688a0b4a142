/** Who exports which snapshot. A lease that its owner does not renew is anybody's; one without an owner is the wait before the next try. */
import { sql } from 'kysely';
import { inMs, now, type Queryable } from '../../db/db.ts';

export interface ClaimedExport {
  id: string;
  host_id: string | null;
  export_tries: number;
}

/** For FUSE_SNAPSHOT_EXPORT=always. */
export async function requestEveryExport(query: Queryable): Promise<void> {
  await query
    .updateTable('snapshots')
    .set({ export_state: 'pending', export_requested_at: now, updated_at: now })
    .where('state', '=', 'ready')
    .where('export_state', '=', 'none')
    .execute();
}

/** Of snapshots that were found damaged or lost: nothing is left to export. */
export async function endExportsOfErrors(query: Queryable): Promise<void> {
  await query
    .updateTable('snapshots')
    .set((eb) => ({
      export_state: 'error',
      export_error: eb.fn.coalesce('last_error', 'export_error'),
      lease_owner: null,
      lease_until: null,
      updated_at: now,
    }))
    .where('state', '=', 'error')
    .where('export_state', 'in', ['pending', 'running'])
    .where(sql<boolean>`(lease_until is null or lease_until <= now())`)
    .execute();
}

export function claimExports(
  query: Queryable,
  { owner, leaseMs, limit }: { owner: string; leaseMs: number; limit: number },
): Promise<ClaimedExport[]> {
  return query
    .updateTable('snapshots')
    .set({ export_state: 'running', lease_owner: owner, lease_until: inMs(leaseMs) })
    .where('id', 'in', (eb) =>
      eb
        .selectFrom('snapshots')
        .select('id')
        .where('state', '=', 'ready')
        .where('export_state', 'in', ['pending', 'running'])
        .where(sql<boolean>`(lease_until is null or lease_until <= now())`)
        .orderBy('export_requested_at')
        .limit(limit)
        .forUpdate()
        .skipLocked(),
    )
    .returning(['id', 'host_id', 'export_tries'])
    .execute();
}

/** Those that are still the owner's. */
export async function renewExports(
  query: Queryable,
  { owner, ids, leaseMs }: { owner: string; ids: string[]; leaseMs: number },
): Promise<Set<string>> {
  if (ids.length === 0) return new Set();
  const rows = await query
    .updateTable('snapshots')
    .set({ lease_until: inMs(leaseMs) })
    .where('id', 'in', ids)
    .where('lease_owner', '=', owner)
    .where('export_state', '=', 'running')
    .returning('id')
    .execute();
  return new Set(rows.map(({ id }) => id));
}

/** So that others need not wait for the lease to run out. */
export async function giveUpExports(query: Queryable, owner: string): Promise<void> {
  await query
    .updateTable('snapshots')
    .set({ export_state: 'pending', lease_owner: null, lease_until: null })
    .where('lease_owner', '=', owner)
    .where('export_state', '=', 'running')
    .execute();
}

/** For a database that only one process can have open: whoever exported is gone. */
export async function endAllExports(query: Queryable): Promise<void> {
  await query
    .updateTable('snapshots')
    .set({ export_state: 'pending', lease_owner: null, lease_until: null })
    .where('export_state', '=', 'running')
    .execute();
}

/** Who drives which run. A lease that its owner does not renew is anybody's. */
import { sql } from 'kysely';
import { inMs, type Queryable } from '../db/db.ts';
import type { RunRow } from '../db/schema.ts';

/** Takes over runs that were started by a process that is gone. */
export async function claimAbandonedRuns(
  query: Queryable,
  { owner, leaseMs, limit }: { owner: string; leaseMs: number; limit: number },
): Promise<RunRow[]> {
  return query
    .updateTable('runs')
    .set({ lease_owner: owner, lease_until: inMs(leaseMs), version: sql<number>`version + 1` })
    .where('id', 'in', (eb) =>
      eb
        .selectFrom('runs')
        .select('id')
        .where('state', 'in', ['starting', 'running', 'saving'])
        .where(sql<boolean>`(lease_until is null or lease_until <= now())`)
        .orderBy('created_at')
        .limit(limit)
        .forUpdate()
        .skipLocked(),
    )
    .returningAll()
    .execute();
}

/** Those that are still the owner's; the others are lost. */
export async function renewLeases(
  query: Queryable,
  owner: string,
  runIds: string[],
  leaseMs: number,
): Promise<Map<string, { cancelRequested: boolean }>> {
  if (runIds.length === 0) return new Map();
  const rows = await query
    .updateTable('runs')
    .set({ lease_until: inMs(leaseMs) })
    .where('lease_owner', '=', owner)
    .where('id', 'in', runIds)
    .returning(['id', 'cancel_requested_at'])
    .execute();
  return new Map(rows.map((row) => [row.id, { cancelRequested: row.cancel_requested_at !== null }]));
}

/** For a database that only one process can have open: whoever held a lease is gone. */
export async function endAllLeases(query: Queryable): Promise<void> {
  await query
    .updateTable('runs')
    .set({ lease_owner: null, lease_until: null })
    .where('state', 'in', ['starting', 'running', 'saving'])
    .execute();
}

/** So that others need not wait for the leases to run out. */
export async function giveUpLeases(query: Queryable, owner: string): Promise<void> {
  await query
    .updateTable('runs')
    .set({ lease_owner: null, lease_until: null })
    .where('lease_owner', '=', owner)
    .where('state', 'in', ['starting', 'running', 'saving'])
    .execute();
}

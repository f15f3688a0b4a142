/** Runs that wait for room. Whose turn it is: scheduling/turns.ts. */
import { sql } from 'kysely';
import type { Queryable, Tx } from '../db/db.ts';
import type { RunRow } from '../db/schema.ts';

/** Undefined when it waits no more, or is being cancelled. */
export function lockQueued(tx: Tx, runId: string): Promise<RunRow | undefined> {
  return tx
    .selectFrom('runs')
    .selectAll()
    .where('id', '=', runId)
    .where('state', '=', 'queued')
    .where(sql<boolean>`queue_deadline > now()`)
    .forUpdate()
    .skipLocked()
    .executeTakeFirst();
}

export async function queuedBeyondDeadline(query: Queryable, limit: number): Promise<string[]> {
  const rows = await query
    .selectFrom('runs')
    .select('id')
    .where('state', '=', 'queued')
    .where(sql<boolean>`queue_deadline <= now()`)
    .limit(limit)
    .execute();
  return rows.map((row) => row.id);
}

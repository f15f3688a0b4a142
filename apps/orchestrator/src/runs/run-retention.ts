/** Runs whose time is over. */
import { sql } from 'kysely';
import type { Queryable, Tx } from '../db/db.ts';

export async function expiredRuns(query: Queryable, limit: number): Promise<string[]> {
  const rows = await query
    .selectFrom('runs')
    .select('id')
    .where('expires_at', 'is not', null)
    .where(sql<boolean>`expires_at <= now()`)
    .orderBy('expires_at')
    .limit(limit)
    .execute();
  return rows.map((row) => row.id);
}

/** With its events; its outputs go by themselves. */
export async function deleteRun(tx: Tx, runId: string): Promise<void> {
  await tx.deleteFrom('events').where('subject_kind', '=', 'run').where('subject_id', '=', runId).execute();
  await tx.deleteFrom('runs').where('id', '=', runId).execute();
}

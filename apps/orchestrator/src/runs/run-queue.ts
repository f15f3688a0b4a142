/** The queue: runs that wait for room, oldest first. */
import { sql } from 'kysely';
import type { Queryable, Tx } from '../db/db.ts';
import type { RunRow } from '../db/schema.ts';

const ADVISORY_LOCK = 4_711_200_002;

/** One process hands out room at a time, else the order would be nobody's. False: another one is at it. */
export async function tryLockQueue(tx: Tx): Promise<boolean> {
  const result = await sql<{ locked: boolean }>`
    select pg_try_advisory_xact_lock(${ADVISORY_LOCK}::bigint) as locked`.execute(tx);
  return result.rows[0]?.locked === true;
}

export async function anyQueued(query: Queryable): Promise<boolean> {
  const result = await sql<{ queued: boolean }>`
    select exists (select from runs where state = 'queued' and queue_deadline > now()) as queued`.execute(query);
  return result.rows[0]?.queued === true;
}

export type QueuedRun = RunRow & { age_ms: number };

export function oldestQueued(tx: Tx, limit: number): Promise<QueuedRun[]> {
  return tx
    .selectFrom('runs')
    .selectAll()
    .select(sql<number>`(extract(epoch from now() - created_at) * 1000)::float8`.as('age_ms'))
    .where('state', '=', 'queued')
    .where(sql<boolean>`queue_deadline > now()`)
    .orderBy('created_at')
    .orderBy('id')
    .limit(limit)
    .forUpdate()
    .skipLocked()
    .execute();
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

/** Until the next deadline in the queue; undefined when nothing waits. */
export async function nextDeadlineInMs(query: Queryable): Promise<number | undefined> {
  const result = await sql<{ ms: number | null }>`
    select (extract(epoch from min(queue_deadline) - now()) * 1000)::float8 as ms from runs where state = 'queued'`.execute(
    query,
  );
  return result.rows[0]?.ms ?? undefined;
}

/** Quotas and what is used of them, in SQL. */
import type { Quotas } from '@fuse/contract';
import { sql } from 'kysely';
import type { Queryable, Tx } from '../db/db.ts';

/** Of a tenant that has limits, or is disabled. */
export interface Limits {
  quotas: Quotas;
  isDisabled: boolean;
}

/**
 * Holds the tenant's row until the transaction ends, so that what is summed now is true when it commits. Before hosts, snapshots and environments are
 * locked. Undefined: it has no limits, and is held so far that it is not deleted before the transaction ends. One that was deleted is disabled.
 */
export function lockLimits(tx: Tx, tenantId: string): Promise<Limits | undefined> {
  const locked = lockedIn.get(tx) ?? new Map<string, Promise<Limits | undefined>>();
  lockedIn.set(tx, locked);
  const limits = locked.get(tenantId) ?? lock(tx, tenantId);
  locked.set(tenantId, limits);
  return limits;
}

/** Once in a transaction: what is held stays as it is, and who had no limits then gets none meanwhile. */
const lockedIn = new WeakMap<Tx, Map<string, Promise<Limits | undefined>>>();

async function lock(tx: Tx, tenantId: string): Promise<Limits | undefined> {
  const kept = await tx.selectFrom('tenants').select('id').where('id', '=', tenantId).forKeyShare().executeTakeFirst();
  if (kept === undefined) return { quotas: {}, isDisabled: true };
  if ((await limitsOf(tx, tenantId)) === undefined) return undefined;
  const row = await tx
    .selectFrom('tenants')
    .select(['quotas', 'disabled_at'])
    .where('id', '=', tenantId)
    .forNoKeyUpdate()
    .executeTakeFirst();
  return row === undefined ? undefined : { quotas: row.quotas, isDisabled: row.disabled_at !== null };
}

/** As `lockLimits`, of several, in the one order. */
export async function lockAllLimits(tx: Tx, tenantIds: Iterable<string>): Promise<void> {
  for (const id of [...new Set(tenantIds)].sort()) await lockLimits(tx, id);
}

export async function limitsOf(db: Queryable, tenantId: string): Promise<Limits | undefined> {
  const row = await db
    .selectFrom('tenants')
    .select(['quotas', 'disabled_at'])
    .where('id', '=', tenantId)
    .where(sql<boolean>`(quotas <> '{}'::jsonb or disabled_at is not null)`)
    .executeTakeFirst();
  return row === undefined ? undefined : { quotas: row.quotas, isDisabled: row.disabled_at !== null };
}

export interface Reserved {
  environments: number;
  cpus: number;
  ram_mb: number;
  storage_gb: number;
}

/** By environments that are not gone; one that waits for a host has nothing yet, a paused one its disk alone. */
export async function reservedBy(db: Queryable, tenantId: string): Promise<Reserved> {
  const { rows } = await sql<Reserved>`
    select count(*)::int as environments,
      coalesce(sum(cpus) filter (where not is_paused), 0)::bigint as cpus,
      coalesce(sum(ram_mb) filter (where not is_paused), 0)::bigint as ram_mb,
      coalesce(sum(storage_gb), 0)::bigint as storage_gb
    from reservations where tenant_id = ${tenantId}`.execute(db);
  return theOnly(rows);
}

export const CREATES_WINDOW_SECONDS = 60;

/** Instants of what was made in the last 60 seconds. A run counts once, when it is asked for, whenever it gets its environment. */
const madeBy = (tenantId: string) => sql`(
  select created_at as at from environments
    where tenant_id = ${tenantId} and run_id is null and created_at > now() - interval '60 seconds'
  union all
  select created_at from runs where tenant_id = ${tenantId} and created_at > now() - interval '60 seconds') as made`;

export async function createsBy(db: Queryable, tenantId: string): Promise<{ used: number; resetSeconds: number }> {
  const { rows } = await sql<{ used: number; resetSeconds: number }>`
    select count(*)::int as used, coalesce(ceil(extract(epoch from min(at) + interval '60 seconds' - now())), 0)::int as "resetSeconds"
    from ${madeBy(tenantId)}`.execute(db);
  return theOnly(rows);
}

/** Until so many of the oldest are older than 60 seconds. */
export async function secondsUntilFree(db: Queryable, tenantId: string, count: number): Promise<number> {
  const { rows } = await sql<{ seconds: number }>`
    select ceil(extract(epoch from at + interval '60 seconds' - now()))::int as seconds
    from ${madeBy(tenantId)} order by at offset ${count - 1} limit 1`.execute(db);
  return Math.max(1, rows[0]?.seconds ?? 1);
}

/** On hosts; copies in the object store are not counted again. */
export async function snapshotBytesOf(db: Queryable, tenantId: string): Promise<number> {
  const { rows } = await sql<{ bytes: number }>`
    select coalesce(sum(stored_bytes), 0)::bigint as bytes from snapshots where tenant_id = ${tenantId}`.execute(db);
  return theOnly(rows).bytes;
}

/** Of runs that are kept (their logs too) and of uploads. */
export async function outputBytesOf(db: Queryable, tenantId: string): Promise<number> {
  const { rows } = await sql<{ bytes: number }>`
    select (select coalesce(sum(o.size_bytes), 0) from run_outputs o join runs r on r.id = o.run_id where r.tenant_id = ${tenantId})::bigint
      + (select coalesce(sum(size_bytes), 0) from files where tenant_id = ${tenantId})::bigint as bytes`.execute(db);
  return theOnly(rows).bytes;
}

function theOnly<T>(rows: readonly T[]): T {
  const [row] = rows;
  if (row === undefined) throw new Error('an aggregate without a row');
  return row;
}

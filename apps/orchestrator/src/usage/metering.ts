/**
 * What is used goes from rows to the ledger `usage`, by the hour. Of an environment: what it has reserved, while it is `running` or `draining`. `metered_at`
 * is up to when that is in the ledger; it moves in the transaction that writes there, under the row's lock, so every second is counted once, whoever counts
 * and whatever dies. Of stored bytes: `cluster.stored_metered_at` does the same for all of them. What is not in the ledger yet is added by whoever reads it.
 */
import type { EnvironmentState } from '@fuse/contract';
import { type RawBuilder, sql } from 'kysely';
import { now, type Queryable, type Tx } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';

/** An interval (`tenant_id`, `since`, `until`, `cpus`, `ram_mb`) cut at full hours: `tenant_id`, `hour`, `vcpu_seconds`, `gib_seconds`. */
const byHour = (intervals: RawBuilder<unknown>): RawBuilder<unknown> => sql`
  select tenant_id, hour, sum(cpus * seconds) as vcpu_seconds, sum(ram_mb / 1024.0 * seconds) as gib_seconds, 0::float8 as stored_byte_seconds
  from (${intervals}) as used ${hoursOf} group by tenant_id, hour`;

/** As `byHour`, of `bytes` that are kept. */
const storedByHour = (intervals: RawBuilder<unknown>): RawBuilder<unknown> => sql`
  select tenant_id, hour, 0::float8 as vcpu_seconds, 0::float8 as gib_seconds, sum(bytes * seconds) as stored_byte_seconds
  from (${intervals}) as used ${hoursOf} group by tenant_id, hour`;

/** Whatever the session's time zone is, hours are those of UTC. */
const hoursOf = sql`
  cross join lateral generate_series(date_trunc('hour', used.since, 'UTC'), used.until, interval '1 hour') as hour
  cross join lateral (select extract(epoch from least(used.until, hour + interval '1 hour') - greatest(used.since, hour))::float8 as seconds) as part
  where seconds > 0`;

/** In one order, so that two that write do not wait for each other in a circle; nothing is kept of a tenant that is gone. */
const intoLedger = (hours: RawBuilder<unknown>): RawBuilder<unknown> => sql`
  insert into usage (tenant_id, hour, vcpu_seconds, gib_seconds, stored_byte_seconds)
  select hours.* from (${hours}) as hours join tenants on tenants.id = hours.tenant_id order by tenant_id, hour
  on conflict (tenant_id, hour) do update set vcpu_seconds = usage.vcpu_seconds + excluded.vcpu_seconds,
    gib_seconds = usage.gib_seconds + excluded.gib_seconds, stored_byte_seconds = usage.stored_byte_seconds + excluded.stored_byte_seconds`;

export const isMetered = (state: EnvironmentState): boolean => state === 'running' || state === 'draining';
const metered = sql`state in ('running', 'draining')`;

/** Before the compare-and-set that ends its running, in its transaction: up to now is in the ledger. Nothing when the row changed since it was read. */
export async function settleUse(tx: Tx, row: Pick<EnvironmentRow, 'uid' | 'version'>): Promise<void> {
  const held = sql`
    select tenant_id, metered_at as since, now() as until, cpus, ram_mb from environments
    where uid = ${row.uid} and version = ${row.version} and metered_at is not null for update`;
  await sql`with held as (${held}) ${intoLedger(byHour(sql`select * from held`))}`.execute(tx);
}

/**
 * Of those that run and are in the ledger up to some time before `before` only, so many at once, up to now. How many there were. One that is being changed is
 * left to whoever changes it.
 */
export async function meterRunning(tx: Tx, { before, limit }: { before: Date; limit: number }): Promise<number> {
  const { rows } = await sql<{ count: number }>`
    with held as (
      select uid, tenant_id, coalesce(metered_at, now()) as since, now() as until, cpus, ram_mb from environments
      where ${metered} and coalesce(metered_at < ${before}, true) order by uid limit ${limit} for update skip locked),
    moved as (update environments set metered_at = now() from held where environments.uid = held.uid returning environments.uid),
    written as (${intoLedger(byHour(sql`select * from held`))} returning 1)
    select count(*)::int as count from moved`.execute(tx);
  return rows[0]?.count ?? 0;
}

/** Bytes of snapshots on hosts, of outputs and of uploads, each since it was there or was metered last. Those that began at once are one row. */
const storedSince = (of = sql`true`): RawBuilder<unknown> => sql`
  select tenant_id, since, now() as until, sum(bytes)::float8 as bytes from (
    select tenant_id, greatest(created_at, (select stored_metered_at from cluster)) as since, stored_bytes as bytes
      from snapshots where stored_bytes > 0
    union all
    select tenant_id, greatest(created_at, (select stored_metered_at from cluster)), size_bytes from files
    union all
    select runs.tenant_id, greatest(runs.finished_at, (select stored_metered_at from cluster)), size_bytes
      from run_outputs join runs on runs.id = run_outputs.run_id
  ) as kept where ${of} group by tenant_id, since`;

/** Up to now of all that is stored. */
export async function meterStored(tx: Tx): Promise<void> {
  const cluster = await tx.selectFrom('cluster').select('tag').forNoKeyUpdate().executeTakeFirst();
  if (cluster === undefined) return; // nothing was ever started on it
  await intoLedger(storedByHour(storedSince())).execute(tx);
  await tx.updateTable('cluster').set({ stored_metered_at: now }).execute();
}

export interface UsedInHour {
  hour: Date;
  vcpu_seconds: number;
  gib_seconds: number;
  stored_byte_seconds: number;
  egress_bytes: number;
}

/** Hours that begin from `from` on and before `to`, with what is not in the ledger yet; oldest first, those without any use are left out. */
export async function usageByHour(
  db: Queryable,
  { tenantId, from, to }: { tenantId: string; from: Date; to: Date },
): Promise<UsedInHour[]> {
  const running = sql`
    select tenant_id, metered_at as since, now() as until, cpus, ram_mb from environments
    where tenant_id = ${tenantId} and ${metered} and metered_at is not null`;
  const { rows } = await sql<UsedInHour>`
    select hour, sum(vcpu_seconds)::float8 as vcpu_seconds, sum(gib_seconds)::float8 as gib_seconds,
      sum(stored_byte_seconds)::float8 as stored_byte_seconds, sum(egress_bytes)::bigint as egress_bytes
    from (
      select tenant_id, hour, vcpu_seconds, gib_seconds, stored_byte_seconds, egress_bytes from usage where tenant_id = ${tenantId}
      union all select *, 0 from (${byHour(running)}) as running
      union all select *, 0 from (${storedByHour(storedSince(sql`tenant_id = ${tenantId}`))}) as stored
    ) as used
    where hour >= ${from} and hour < ${to}
    group by hour order by hour`.execute(db);
  return rows;
}

export async function databaseTime(db: Queryable): Promise<Date> {
  const { rows } = await sql<{ at: Date }>`select now() as at`.execute(db);
  const [row] = rows;
  if (row === undefined) throw new Error('a database without a clock');
  return row.at;
}

/** Who waits for room: runs and environments together, as they are in their rows. */
import type { EnvironmentSpec } from '@fuse/contract';
import { type RawBuilder, sql } from 'kysely';
import type { Queryable } from '../../db/db.ts';
import type { EnvironmentRow } from '../../db/schema.ts';
import { limitsOf, reservedBy } from '../../quotas/quota-store.ts';
import type { PlacementSpec } from '../../scheduling/placement.ts';
import type { Queue, QuotaRoom, Waiter } from '../../scheduling/turns.ts';
import { snapshotById } from '../../snapshots/snapshot-store.ts';
import { effectiveSpec } from '../environment.ts';

export interface Waiting extends Waiter {
  kind: 'run' | 'environment';
}

/** Looked at in one go: so many tenants, those first that were served longest ago, and so many of each. */
const MAX_TENANTS = 50;
const MAX_OF_EACH = 20;

const waitingRun = sql`state = 'queued' and queue_deadline > now()`;
const waitingEnvironment = sql`state = 'provisioning' and queue_deadline > now()`;

export async function anyWaiting(db: Queryable): Promise<boolean> {
  const { rows } = await sql<{ any: boolean }>`
    select exists (select from runs where ${waitingRun}) or exists (select from environments where ${waitingEnvironment}) as any`.execute(
    db,
  );
  return rows[0]?.any === true;
}

/** How many of this tenant wait, counted up to `limit`. */
export async function countWaiting(db: Queryable, tenantId: string, limit: number): Promise<number> {
  const { rows } = await sql<{ count: number }>`
    select count(*)::int as count from (
      (select from runs where ${waitingRun} and tenant_id = ${tenantId} limit ${limit})
      union all (select from environments where ${waitingEnvironment} and tenant_id = ${tenantId} limit ${limit})) as waiting`.execute(
    db,
  );
  return rows[0]?.count ?? 0;
}

/** Until the next one that waits has to be given up; negative when one is overdue, undefined when nothing waits. */
export async function nextDeadlineInMs(db: Queryable): Promise<number | undefined> {
  const { rows } = await sql<{ ms: number | null }>`
    select (extract(epoch from least(
      (select min(queue_deadline) from runs where state = 'queued'),
      (select min(queue_deadline) from environments where queue_deadline is not null)
    ) - now()) * 1000)::float8 as ms`.execute(db);
  return rows[0]?.ms ?? undefined;
}

type WaitingRow = Pick<EnvironmentRow, 'image' | 'cpus' | 'ram_mb' | 'storage_gb'> & {
  kind: Waiting['kind'];
  id: string;
  tenant_id: string;
  waited_ms: number;
  served_at: number | null;
  /** Of environments. */
  spec: EnvironmentSpec | null;
  seed: { id: string; host_id: string | null; arch: string; is_exported: boolean } | null;
};

/** A recursive table `name`: from one tenant to the next along the index, however many wait of each. The last row is null. */
function eachTenant(name: string, table: string, waits: RawBuilder<unknown>): RawBuilder<unknown> {
  const rows = sql`from ${sql.table(table)} where ${waits}`;
  return sql`${sql.ref(name)} (tenant_id) as (
    (select min(tenant_id) ${rows})
    union all
    select (select min(tenant_id) ${rows} and tenant_id > before.tenant_id) from ${sql.ref(name)} before where before.tenant_id is not null)`;
}

/** `withRuns: false`: for a process that cannot drive another run. Those of disabled tenants wait on. */
export async function readQueue(
  db: Queryable,
  { withRuns }: { withRuns: boolean },
): Promise<Omit<Queue<Waiting>, 'quotas'>> {
  const { rows } = await sql<WaitingRow>`
    with recursive ${eachTenant('of_runs', 'runs', sql`state = 'queued' and ${withRuns}::boolean`)},
      ${eachTenant('of_environments', 'environments', sql`queue_deadline is not null`)}
    select w.*, t.tenant_id, extract(epoch from t.served_at)::float8 as served_at
    from (
      select a.tenant_id, tenants.queue_served_at as served_at from (
        select tenant_id from of_runs union select tenant_id from of_environments) a
      left join tenants on tenants.id = a.tenant_id
      where a.tenant_id is not null and tenants.disabled_at is null
      order by tenants.queue_served_at nulls first, a.tenant_id limit ${MAX_TENANTS}) t
    cross join lateral (
      (select 'run' as kind, id, image, cpus, ram_mb, storage_gb, null::jsonb as spec, null::jsonb as seed,
          (extract(epoch from now() - created_at) * 1000)::float8 as waited_ms
        from runs where ${withRuns}::boolean and ${waitingRun} and tenant_id = t.tenant_id order by created_at, id limit ${MAX_OF_EACH})
      union all
      (select 'environment', uid::text, e.image, e.cpus, e.ram_mb, e.storage_gb, e.spec,
          case when s.id is not null then jsonb_build_object(
            'id', s.id, 'host_id', s.host_id, 'arch', s.arch, 'is_exported', s.manifest_key is not null) end,
          (extract(epoch from now() - e.created_at) * 1000)::float8
        from environments e left join snapshots s on s.id = e.seed_snapshot_id
        where e.state = 'provisioning' and e.queue_deadline > now() and e.tenant_id = t.tenant_id
        order by e.created_at, e.uid limit ${MAX_OF_EACH})) w`.execute(db);
  const servedAt = new Map<string, number>();
  for (const { tenant_id, served_at } of rows) if (served_at !== null) servedAt.set(tenant_id, served_at);
  const waiting = rows.map((row) => ({
    kind: row.kind,
    id: row.id,
    tenantId: row.tenant_id,
    spec: placementSpecOf(row),
    waitedMs: row.waited_ms,
  }));
  return { waiting, servedAt };
}

/** Of one that waits. */
export async function wantedByRow(db: Queryable, row: EnvironmentRow): Promise<PlacementSpec> {
  const snapshot = row.seed_snapshot_id === null ? undefined : await snapshotById(db, row.seed_snapshot_id);
  const seed =
    snapshot === undefined
      ? null
      : {
          id: snapshot.id,
          host_id: snapshot.host_id,
          arch: snapshot.arch,
          is_exported: snapshot.manifest_key !== null,
        };
  return placementSpecOf({ ...row, seed });
}

function placementSpecOf(
  row: Pick<WaitingRow, 'spec' | 'image' | 'cpus' | 'ram_mb' | 'storage_gb' | 'seed'>,
): PlacementSpec {
  const { spec, image, cpus, ram_mb, storage_gb, seed } = row;
  const shape = { image, cpus, ram_mb, storage_gb };
  if (spec === null) return shape;
  const wanted = { ...effectiveSpec(spec), ...shape };
  if (seed === null) return wanted;
  const { id: snapshotId, host_id: hostId, arch, is_exported: isExported } = seed;
  return { ...wanted, arch, seed: { snapshotId, hostId, isExported } };
}

/** What is left to those that wait. True until the transaction ends if their limits are locked. */
export async function quotaRooms(db: Queryable, waiting: readonly Waiting[]): Promise<Map<string, QuotaRoom>> {
  const rooms = new Map<string, QuotaRoom>();
  for (const tenantId of new Set(waiting.map((each) => each.tenantId))) {
    const limits = await limitsOf(db, tenantId);
    if (limits === undefined) continue;
    const used = await reservedBy(db, tenantId);
    const room: QuotaRoom = {};
    for (const key of ['environments', 'cpus', 'ram_mb', 'storage_gb'] as const) {
      const limit = limits.quotas[key];
      if (limit !== undefined) room[key] = limit - used[key];
    }
    rooms.set(tenantId, room);
  }
  return rooms;
}

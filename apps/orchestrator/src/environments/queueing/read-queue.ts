/** The part of the queue that the next turns are made of. */
import { type RawBuilder, sql } from 'kysely';
import type { Queryable } from '../../db/db.ts';
import type { SchedulableHost } from '../../scheduling/schedule.ts';
import type { Queue } from '../../scheduling/turns.ts';
import { spellingsOf } from '../environment.ts';
import { placementSpecOf, type Waiting, type WantingRow, waitingEnvironment, waitingRun } from './waiting.ts';

/** Of each tenant: the oldest of what could be its head, and the oldest of what fits now. Fewer when very many tenants wait, but never none. */
const MAX_OF_EACH = 20;
const MIN_OF_EACH = 2;
const MAX_OF_ALL = 1_000;

type WaitingRow = WantingRow & {
  kind: Waiting['kind'];
  id: string;
  tenant_id: string;
  waited_ms: number;
  served_at: number | null;
};

/** A recursive table `name`: from one tenant to the next along the index, however many wait of each. The last row is null. */
function eachTenant(name: string, table: string, waits: RawBuilder<unknown>): RawBuilder<unknown> {
  const rows = sql`from ${sql.table(table)} where ${waits}`;
  return sql`${sql.ref(name)} (tenant_id) as (
    (select min(tenant_id) ${rows})
    union all
    select (select min(tenant_id) ${rows} and tenant_id > before.tenant_id) from ${sql.ref(name)} before where before.tenant_id is not null)`;
}

/** What rows are compared with, so that those which no host takes now hide nobody behind them: the gates of scheduling/schedule.ts that depend on the row. */
const wantedHost = ({ capacity, used, freeStorageGb, ...host }: SchedulableHost) => ({
  id: host.id,
  region: host.region ?? '',
  arches: spellingsOf(host.arch),
  arch: host.arch,
  labels: host.labels,
  images: host.images,
  has_network: host.noNetwork === undefined,
  cpus: capacity.cpus,
  ram_mb: capacity.ram_mb,
  storage_gb: capacity.storage_gb,
  free_cpus: capacity.vm_count > used.vm_count ? capacity.cpus - used.cpus : 0,
  free_ram_mb: capacity.ram_mb - used.ram_mb,
  free_storage_gb: Math.min(capacity.storage_gb - used.storage_gb, freeStorageGb ?? Number.POSITIVE_INFINITY),
});

const fitsNow = sql`h.free_cpus >= w.cpus and h.free_ram_mb >= w.ram_mb and h.free_storage_gb >= w.storage_gb`;
const fitsAtAll = sql`h.cpus >= w.cpus and h.ram_mb >= w.ram_mb and h.storage_gb >= w.storage_gb`;
const suitsEnvironment = sql`coalesce(w.spec ->> 'host_id', '') in ('', h.id) and coalesce(w.spec ->> 'region', '') in ('', h.region)
  and h.labels @> coalesce(w.spec -> 'labels', '{}')
  and (w.seed_snapshot_id is not null or coalesce(w.spec ->> 'arch', '') = '' or h.arches ? lower(w.spec ->> 'arch'))
  and coalesce((select s.arch = h.arch and (s.manifest_key is not null or s.host_id = h.id)
    from snapshots s where s.id = w.seed_snapshot_id), true)`;

/** No `exists`: the planner would join all rows first, where the first few by the index do. Of the tenant `t`, those of `table` that wait and that some host takes, the oldest by `id` among alike. */
function candidates(table: string, id: string, waits: RawBuilder<unknown>, suits: RawBuilder<unknown>) {
  const oldest = (fits: RawBuilder<unknown>) => sql`(
    select ${sql.ref(`w.${id}`)} from ${sql.table(table)} w
    where ${waits} and w.tenant_id = t.tenant_id
      and w.cpus <= (select max(case when ${fits === fitsNow}::boolean then free_cpus else cpus end) from hosts_now)
      and (select true from hosts_now h where ${fits} and h.images ? w.image and (h.has_network or w.network ->> 'egress' = 'none') and ${suits} limit 1)
    order by w.created_at, ${sql.ref(`w.${id}`)} limit (select greatest(${MIN_OF_EACH}, least(${MAX_OF_EACH}, ${MAX_OF_ALL} / greatest(count(*), 1))) from t))`;
  return sql`(${oldest(fitsAtAll)} union ${oldest(fitsNow)})`;
}

/**
 * Of every tenant that waits, however many do, those that could have a turn, or hold a host, on these hosts. `withRuns: false`: for a process that cannot drive
 * another run. Those of disabled tenants wait on.
 */
export async function readQueue(
  db: Queryable,
  { withRuns, hosts }: { withRuns: boolean; hosts: readonly SchedulableHost[] },
): Promise<Pick<Queue<Waiting>, 'waiting' | 'servedAt'>> {
  const present = hosts.filter(({ state, reachable }) => state === 'active' && reachable).map(wantedHost);
  // Compiling the statement takes seconds, running it milliseconds, with 50000 that wait.
  await sql`select set_config('jit', 'off', true)`.execute(db);
  const { rows } = await sql<WaitingRow>`
    with recursive ${eachTenant('of_runs', 'runs', sql`state = 'queued' and ${withRuns}::boolean`)},
      ${eachTenant('of_environments', 'environments', sql`queue_deadline is not null`)},
      hosts_now as materialized (
        select * from jsonb_to_recordset(${JSON.stringify(present)}::jsonb) as h (
          id text, region text, arches jsonb, arch text, labels jsonb, images jsonb, has_network boolean, cpus int, ram_mb int, storage_gb int,
          free_cpus int, free_ram_mb int, free_storage_gb int)),
      t as materialized (
        select a.tenant_id, extract(epoch from tenants.queue_served_at)::float8 as served_at from (
          select tenant_id from of_runs union select tenant_id from of_environments) a
        left join tenants on tenants.id = a.tenant_id
        where a.tenant_id is not null and tenants.disabled_at is null)
    select one.*, t.tenant_id, t.served_at
    from t cross join lateral (
      (select 'run' as kind, runs.id, image, cpus, ram_mb, storage_gb, network, null::jsonb as spec, null::jsonb as seed,
          (extract(epoch from now() - created_at) * 1000)::float8 as waited_ms
        from ${candidates('runs', 'id', sql`${withRuns}::boolean and ${waitingRun}`, sql`true`)} c (id) join runs on runs.id = c.id)
      union all
      (select 'environment', e.uid::text, e.image, e.cpus, e.ram_mb, e.storage_gb, e.network, e.spec,
          case when s.id is not null then jsonb_build_object(
            'id', s.id, 'host_id', s.host_id, 'arch', s.arch, 'is_exported', s.manifest_key is not null) end,
          (extract(epoch from now() - e.created_at) * 1000)::float8
        from ${candidates('environments', 'uid', waitingEnvironment, suitsEnvironment)} c (uid)
        join environments e on e.uid = c.uid left join snapshots s on s.id = e.seed_snapshot_id)) one`.execute(db);
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

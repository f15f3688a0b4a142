/** What many tenants have, at once: in the terms of their quotas, as `quotas/quota-store.ts` counts for one. */
import type { TenantUsage } from '@fuse/contract';
import { sql } from 'kysely';
import type { Queryable } from '../db/db.ts';
import { waitingEnvironment, waitingRun } from '../environments/queueing/waiting.ts';

type UsageRow = TenantUsage['used'] & {
  tenant_id: string;
  waiting_environments: number;
  waiting_runs: number;
  waiting_since: Date | null;
};

export async function usageOfTenants(db: Queryable, tenantIds: readonly string[]): Promise<Map<string, TenantUsage>> {
  const ours = sql`tenant_id = any(${[...tenantIds]})`;
  const justNow = sql`created_at > now() - interval '60 seconds'`;
  const { rows } = await sql<UsageRow>`
    with reserved as (
      select tenant_id, count(*) as environments, sum(cpus) filter (where not is_paused) as cpus,
        sum(ram_mb) filter (where not is_paused) as ram_mb, sum(storage_gb) as storage_gb
      from reservations where ${ours} group by tenant_id
    ), made as (
      select tenant_id, count(*) as creates from (
        select tenant_id from environments where ${ours} and run_id is null and ${justNow}
        union all select tenant_id from runs where ${ours} and ${justNow}) as each group by tenant_id
    ), snapped as (
      select tenant_id, sum(stored_bytes) as bytes from snapshots where ${ours} group by tenant_id
    ), saved as (
      select tenant_id, sum(size_bytes) as bytes from (
        select r.tenant_id, o.size_bytes from run_outputs o join runs r on r.id = o.run_id where r.tenant_id = any(${[...tenantIds]})
        union all select tenant_id, size_bytes from files where ${ours}) as each group by tenant_id
    ), waiting as (
      select tenant_id, count(*) filter (where kind = 'environment') as environments, count(*) filter (where kind = 'run') as runs,
        min(created_at) as since
      from (
        select 'environment' as kind, tenant_id, created_at from environments where ${ours} and ${waitingEnvironment}
        union all select 'run', tenant_id, created_at from runs where ${ours} and ${waitingRun}) as each group by tenant_id
    )
    select t.id as tenant_id, coalesce(reserved.environments, 0)::int as environments, coalesce(reserved.cpus, 0)::bigint as cpus,
      coalesce(reserved.ram_mb, 0)::bigint as ram_mb, coalesce(reserved.storage_gb, 0)::bigint as storage_gb,
      coalesce(made.creates, 0)::int as creates_per_minute, coalesce(snapped.bytes, 0)::bigint as snapshot_bytes,
      coalesce(saved.bytes, 0)::bigint as output_bytes, coalesce(waiting.environments, 0)::int as waiting_environments,
      coalesce(waiting.runs, 0)::int as waiting_runs, waiting.since as waiting_since
    from tenants t
      left join reserved on reserved.tenant_id = t.id left join made on made.tenant_id = t.id
      left join snapped on snapped.tenant_id = t.id left join saved on saved.tenant_id = t.id
      left join waiting on waiting.tenant_id = t.id
    where t.id = any(${[...tenantIds]})`.execute(db);
  return new Map(
    rows.map(({ tenant_id, waiting_environments, waiting_runs, waiting_since, ...used }) => [
      tenant_id,
      {
        used,
        waiting: {
          environments: waiting_environments,
          runs: waiting_runs,
          ...(waiting_since === null ? {} : { since: waiting_since.toISOString() }),
        },
      },
    ]),
  );
}

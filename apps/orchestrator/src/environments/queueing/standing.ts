/** How the tenants stand of which something waits: what their quotas leave them, what they have, and on which hosts. */
import type { QuotaName } from '@fuse/contract';
import { sql } from 'kysely';
import type { Queryable } from '../../db/db.ts';
import type { Usage } from '../../scheduling/schedule.ts';
import type { Queue, QuotaRoom } from '../../scheduling/turns.ts';
import type { Waiting } from './waiting.ts';

type OnHost = Usage & { tenant_id: string; host_id: string; environments: number };

/** With the time. True until the transaction ends of those whose limits are locked, and once hosts are. */
export async function standingOf(
  db: Queryable,
  waiting: readonly Waiting[],
): Promise<Pick<Queue, 'quotas' | 'own' | 'atMs'>> {
  const tenants = [...new Set(waiting.map(({ tenantId }) => tenantId))];
  const { rows: limits } = await sql<{ id: string; quotas: Partial<Record<QuotaName, number>> }>`
    select id, quotas from tenants where id = any(${tenants}) and quotas <> '{}'::jsonb`.execute(db);
  const { rows: held } = await sql<OnHost>`
    select tenant_id, host_id, count(*)::int as environments, sum(storage_gb)::int as storage_gb,
      coalesce(sum(cpus) filter (where not is_paused), 0)::int as cpus,
      coalesce(sum(ram_mb) filter (where not is_paused), 0)::int as ram_mb,
      count(*) filter (where not is_paused)::int as vm_count,
      coalesce(jsonb_agg(gpus) filter (where gpus is not null), '[]') as gpus
    from reservations where tenant_id = any(${tenants}) group by tenant_id, host_id`.execute(db);
  const { rows } = await sql<{ ms: number }>`select (extract(epoch from now()) * 1000)::float8 as ms`.execute(db);
  const own = new Map<string, Map<string, OnHost>>();
  for (const one of held) own.set(one.tenant_id, (own.get(one.tenant_id) ?? new Map()).set(one.host_id, one));
  const quotas = new Map(limits.map(({ id, quotas }) => [id, roomOf(quotas, [...(own.get(id)?.values() ?? [])])]));
  return { quotas, own, atMs: rows[0]?.ms ?? 0 };
}

function roomOf(limits: Partial<Record<QuotaName, number>>, held: readonly OnHost[]): QuotaRoom {
  const room: QuotaRoom = {};
  for (const key of ['environments', 'cpus', 'ram_mb', 'storage_gb'] as const) {
    const limit = limits[key];
    if (limit !== undefined) room[key] = limit - held.reduce((sum, one) => sum + one[key], 0);
  }
  return room;
}

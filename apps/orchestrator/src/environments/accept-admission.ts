/** What a tenant may ask for, before room is looked for: how many, how long, how much. */
import { DEFAULT_MAX_RUNTIME_SECONDS } from '@fuse/contract';
import { sql } from 'kysely';
import type { Tx } from '../db/db.ts';
import type { RateStanding } from '../quotas/quotas.ts';
import { acceptCreates, defaultRunSeconds, requireRunSeconds } from '../quotas/take-quota.ts';
import type { Admission } from './admission.ts';
import { effectiveSpec } from './environment.ts';

export interface Accepting {
  /** So many alike. */
  count?: number;
  /** Hears how the rate of creates stands with them. */
  told?: ((rate: RateStanding) => void) | undefined;
}

/**
 * The admission, with its longest time when none was given. Throws `quota_exceeded`. The tenant's row is locked from now on, which comes before hosts:
 * whoever locks those first calls `lockLimits` before.
 */
export async function acceptAdmission<A extends Pick<Admission, 'tenantId' | 'spec'>>(
  tx: Tx,
  admission: A,
  { count = 1, told }: Accepting = {},
): Promise<A> {
  const { tenantId, spec } = admission;
  const { cpus, ram_mb, storage_gb } = effectiveSpec(spec);
  const runSeconds = spec.max_runtime_seconds || (await defaultRunSeconds(tx, tenantId, DEFAULT_MAX_RUNTIME_SECONDS));
  const reservation = {
    environments: count,
    cpus: count * cpus,
    ram_mb: count * ram_mb,
    storage_gb: count * storage_gb,
  };
  await acceptCreates(tx, tenantId, { creates: count, runSeconds, reservation }, told);
  return runSeconds === DEFAULT_MAX_RUNTIME_SECONDS
    ? admission
    : { ...admission, spec: { ...spec, max_runtime_seconds: runSeconds } };
}

/** Of one that is to last so long from now on: its age counts too, which begins with its place. Before its row is locked. */
export async function acceptRenewal(tx: Tx, uid: string, seconds: number): Promise<void> {
  const row = await tx
    .selectFrom('environments')
    .select([
      'tenant_id',
      sql<number>`case when queue_deadline is not null then 0
        else greatest(0, ceil(extract(epoch from now() - coalesce((placement ->> 'at')::timestamptz, created_at))))::int end`.as(
        'age_seconds',
      ),
    ])
    .where('uid', '=', uid)
    .executeTakeFirst();
  if (row !== undefined) await requireRunSeconds(tx, row.tenant_id, row.age_seconds + seconds);
}

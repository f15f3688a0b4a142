/** Quotas without clock or adapter: what is over, and how that is said. What is used is a sum over rows (quota-store.ts), never a counter. */
import { AppError, type QuotaName, type Quotas } from '@fuse/contract';

export interface Excess {
  quota: QuotaName;
  limit: number;
  used: number;
  requested: number;
  /** Of a rate: when it is over no longer. */
  retryAfterSeconds?: number;
}

/** The first quota that `used` and `wanted` together are over. */
export function excessOf<Name extends QuotaName>(
  quotas: Quotas,
  used: Readonly<Record<Name, number>>,
  wanted: Readonly<Partial<Record<Name, number>>>,
): Excess | undefined {
  for (const quota of Object.keys(used) as Name[]) {
    const limit = quotas[quota];
    const requested = wanted[quota] ?? 0;
    if (limit !== undefined && requested > 0 && used[quota] + requested > limit)
      return { quota, limit, used: used[quota], requested };
  }
  return undefined;
}

const hints: Record<QuotaName, string> = {
  environments: 'Destroy environments that are not needed any more.',
  cpus: 'Destroy or pause environments that are not needed now.',
  ram_mb: 'Destroy or pause environments that are not needed now.',
  storage_gb: 'Destroy environments that are not needed any more.',
  creates_per_minute: 'Create fewer environments and runs at once.',
  max_run_seconds: 'Ask for a shorter time.',
  snapshot_bytes: 'Delete snapshots that are not needed any more.',
  output_bytes: 'Delete uploads that are not needed any more, or wait until outputs of runs have expired.',
};

/** Of what is reserved. */
const canWait: readonly QuotaName[] = ['environments', 'cpus', 'ram_mb', 'storage_gb'];

/** `mayWait`: what was asked for can be asked for with a queue timeout. */
export function quotaExceeded(
  { quota, limit, used, requested, retryAfterSeconds }: Excess,
  { mayWait = false }: { mayWait?: boolean } = {},
): AppError {
  const waits = mayWait && canWait.includes(quota) && requested <= limit;
  const beyond =
    quota === 'max_run_seconds' ? `${requested} were asked for` : `${used} are used, ${requested} more were asked for`;
  return new AppError('quota_exceeded', `quota ${quota}: the limit is ${limit}, ${beyond}`, {
    details: { quota, limit: String(limit), used: String(used), requested: String(requested) },
    hint: waits ? `${hints[quota]} Or give a queue timeout to wait for others to go.` : hints[quota],
    ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
  });
}

/** Whether this is what `quotaExceeded` says. */
export const saysQuotaExceeded = (message: string): boolean => /^quota \w+: the limit is /.test(message);

/** How a rate stands, for the RateLimit headers. */
export interface RateStanding {
  /** As the policy is called: the quota's name. */
  name: string;
  limit: number;
  windowSeconds: number;
  remaining: number;
  /** Of those that are gone from `remaining`, how many the request itself takes, if nothing else refuses it. */
  taken?: number;
  /** Until more is given again. */
  resetSeconds: number;
}

/**
 * Quotas are checked in the transaction that takes: the tenant's row is locked, what is used is summed, and the rows that the same transaction writes
 * are the taking. So it is given back exactly once, whatever dies: with the row. A tenant without limits costs one look at its row.
 */
import { AppError } from '@fuse/contract';
import type { Queryable, Tx } from '../db/db.ts';
import {
  CREATES_WINDOW_SECONDS,
  createsBy,
  type Limits,
  limitsOf,
  lockLimits,
  outputBytesOf,
  type Reserved,
  reservedBy,
  secondsUntilFree,
  snapshotBytesOf,
} from './quota-store.ts';
import { type Excess, excessOf, quotaExceeded, type RateStanding } from './quotas.ts';

/** What is asked for, before any of it exists. */
export interface Asked {
  /** Environments and runs. */
  creates: number;
  /** Of each of them. */
  runSeconds: number;
  /** Of all of them together. */
  reservation: Reserved;
}

/**
 * For the request itself, whether it gets room at once or waits: throws `quota_exceeded` when it is too many, too long, or more than its tenant could ever
 * have, `forbidden` when its tenant is disabled. Once per request. `told` hears how the rate stands with it, when there is a limit.
 */
export async function acceptCreates(
  tx: Tx,
  tenantId: string,
  { creates, runSeconds, reservation }: Asked,
  told: (rate: RateStanding) => void = () => {},
): Promise<void> {
  const limits = await lockLimits(tx, tenantId);
  if (limits === undefined) return;
  const { quotas } = limits;
  if (limits.isDisabled) throw tenantDisabled(tenantId);
  throwIfOver(excessOf(quotas, { max_run_seconds: 0 }, { max_run_seconds: runSeconds }));
  if (excessOf(quotas, NOTHING, reservation) !== undefined)
    throwIfOver(excessOf(quotas, await reservedBy(tx, tenantId), reservation));
  const limit = quotas.creates_per_minute;
  if (limit === undefined) return;
  const { used, resetSeconds } = await createsBy(tx, tenantId);
  const rate = { name: 'creates_per_minute', limit, windowSeconds: CREATES_WINDOW_SECONDS };
  const over = used + creates - limit;
  if (over <= 0) {
    told({
      ...rate,
      remaining: -over,
      taken: creates,
      resetSeconds: used === 0 ? CREATES_WINDOW_SECONDS : resetSeconds,
    });
    return;
  }
  // More at once than in any minute: no wait helps.
  const retryAfterSeconds = creates > limit ? undefined : await secondsUntilFree(tx, tenantId, over);
  told({ ...rate, remaining: Math.max(0, limit - used), resetSeconds: retryAfterSeconds ?? resetSeconds });
  throw quotaExceeded({
    quota: 'creates_per_minute',
    limit,
    used,
    requested: creates,
    ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
  });
}

type Told = (rate: RateStanding) => void;

/** `admit` is a transaction that accepts creates. When it is refused nothing was taken, and the rate is told again. */
export async function tellingRate<T>(told: Told | undefined, admit: (told: Told) => Promise<T>): Promise<T> {
  let last: RateStanding | undefined;
  try {
    return await admit((rate) => {
      last = rate;
      told?.(rate);
    });
  } catch (error) {
    if (last?.taken !== undefined) told?.({ ...last, remaining: last.remaining + last.taken });
    throw error;
  }
}

const NOTHING: Reserved = { environments: 0, cpus: 0, ram_mb: 0, storage_gb: 0 };

/** A time that was not given: the default, or the most that the tenant may have. */
export async function defaultRunSeconds(tx: Tx, tenantId: string, seconds: number): Promise<number> {
  const limit = (await lockLimits(tx, tenantId))?.quotas.max_run_seconds;
  return limit === undefined || limit === 0 ? seconds : Math.min(limit, seconds);
}

/** Throws `quota_exceeded` when something that is there is to last longer, all in all, than it may. Before its row is locked. */
export async function requireRunSeconds(tx: Tx, tenantId: string, seconds: number): Promise<void> {
  const quotas = (await lockLimits(tx, tenantId))?.quotas ?? {};
  throwIfOver(excessOf(quotas, { max_run_seconds: 0 }, { max_run_seconds: seconds }));
}

/**
 * What `wanted` would be over, where `promised` is used too; others of the tenant may go by themselves. First before hosts are locked. `disabled`: nothing new
 * starts in it.
 */
export async function overReservation(
  tx: Tx,
  tenantId: string,
  wanted: Partial<Reserved>,
  promised: Reserved = NOTHING,
): Promise<Excess | 'disabled' | undefined> {
  const limits = await lockLimits(tx, tenantId);
  if (limits === undefined) return undefined;
  if (limits.isDisabled) return 'disabled';
  const { environments, cpus, ram_mb, storage_gb } = limits.quotas;
  if ([environments, cpus, ram_mb, storage_gb].every((limit) => limit === undefined)) return undefined;
  const used = await reservedBy(tx, tenantId);
  return excessOf(
    limits.quotas,
    {
      environments: used.environments + promised.environments,
      cpus: used.cpus + promised.cpus,
      ram_mb: used.ram_mb + promised.ram_mb,
      storage_gb: used.storage_gb + promised.storage_gb,
    },
    wanted,
  );
}

/** `bytes` of snapshots more; of one whose size is not known yet, 1. */
export async function overSnapshotBytes(tx: Tx, tenantId: string, bytes: number): Promise<Excess | undefined> {
  const limits = await lockLimits(tx, tenantId);
  if (limits?.quotas.snapshot_bytes === undefined) return undefined;
  return excessOf(limits.quotas, { snapshot_bytes: await snapshotBytesOf(tx, tenantId) }, { snapshot_bytes: bytes });
}

/** `bytes` of outputs and uploads more. */
export async function requireOutputBytes(tx: Tx, tenantId: string, bytes: number): Promise<void> {
  const limits = await lockLimits(tx, tenantId);
  if (limits?.quotas.output_bytes === undefined) return;
  throwIfOver(excessOf(limits.quotas, { output_bytes: await outputBytesOf(tx, tenantId) }, { output_bytes: bytes }));
}

/** How many bytes of outputs and uploads are left until the transaction ends; undefined: no limit. */
export async function holdOutputBytes(tx: Tx, tenantId: string): Promise<number | undefined> {
  return leftOf(tx, tenantId, await lockLimits(tx, tenantId));
}

/** At this moment. */
export async function outputBytesLeft(db: Queryable, tenantId: string): Promise<number | undefined> {
  return leftOf(db, tenantId, await limitsOf(db, tenantId));
}

async function leftOf(db: Queryable, tenantId: string, limits: Limits | undefined): Promise<number | undefined> {
  const limit = limits?.quotas.output_bytes;
  return limit === undefined ? undefined : Math.max(0, limit - (await outputBytesOf(db, tenantId)));
}

function throwIfOver(excess: Excess | undefined): void {
  if (excess !== undefined) throw quotaExceeded(excess);
}

/** For what `overReservation` said of something that does not wait. */
export function requireNotOver(
  over: Excess | 'disabled' | undefined,
  tenantId: string,
  options?: { mayWait: boolean },
): void {
  if (over === 'disabled') throw tenantDisabled(tenantId);
  if (over !== undefined) throw quotaExceeded(over, options);
}

const tenantDisabled = (tenantId: string): AppError =>
  new AppError('forbidden', `tenant ${tenantId} is disabled: nothing new starts in it`);

/** What a tenant may ask of a run, before room is looked for: how many, how long, how much, and whether it may keep anything. */
import type { Tx } from '../db/db.ts';
import type { RateStanding } from '../quotas/quotas.ts';
import {
  acceptCreates,
  defaultRunSeconds,
  overReservation,
  requireNotOver,
  requireOutputBytes,
} from '../quotas/take-quota.ts';
import type { RunPlan } from './request.ts';

interface Accepting {
  /** Else it gets the default, or the longest time that its tenant may have. */
  isTimeGiven: boolean;
  /** It was said that it may wait, and so it does for others of its tenant to go. */
  mayWait: boolean;
  /** Hears how the rate of creates stands with it. */
  told: ((rate: RateStanding) => void) | undefined;
}

/** Throws `quota_exceeded`. The tenant's row is locked from now on, when it has limits. */
export async function acceptRun(
  tx: Tx,
  tenantId: string,
  plan: RunPlan,
  { isTimeGiven, mayWait, told }: Accepting,
): Promise<RunPlan> {
  const askedSeconds = Math.ceil(plan.timeoutMs / 1_000);
  const runSeconds = isTimeGiven ? askedSeconds : await defaultRunSeconds(tx, tenantId, askedSeconds);
  const reservation = { environments: 1, ...plan.shape };
  await acceptCreates(tx, tenantId, { creates: 1, runSeconds, reservation }, told);
  if (!mayWait) requireNotOver(await overReservation(tx, tenantId, reservation), tenantId, { mayWait: true });
  if (plan.outputs.length > 0) await requireOutputBytes(tx, tenantId, 1);
  return runSeconds === askedSeconds ? plan : { ...plan, timeoutMs: runSeconds * 1_000 };
}

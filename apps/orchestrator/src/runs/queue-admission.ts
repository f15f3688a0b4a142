/** What becomes of a queued run: room, or none in time. */
import type { Db, Tx } from '../db/db.ts';
import type { EnvironmentRow, RunRow } from '../db/schema.ts';
import type { EnvironmentService } from '../environments/environment-service.ts';
import type { SchedulableHost } from '../scheduling/schedule.ts';
import { admissionOf } from './run-admission.ts';
import { lockQueued, queuedBeyondDeadline } from './run-queue.ts';
import { admitQueuedRun, endQueuedRun } from './run-store.ts';

export interface AdmittedRun {
  run: RunRow;
  environment: EnvironmentRow;
}

/** On `fleet`, which the caller holds. Undefined when it waits no more, or has to wait on. */
export async function admitQueued(
  environments: EnvironmentService,
  tx: Tx,
  {
    runId,
    fleet,
    owner,
    leaseMs,
  }: { runId: string; fleet: readonly SchedulableHost[]; owner: string; leaseMs: number },
): Promise<AdmittedRun | undefined> {
  const queued = await lockQueued(tx, runId);
  if (queued === undefined) return undefined;
  const admitted = await environments.admit(tx, admissionOf(queued), fleet);
  if (admitted.kind !== 'admitted') return undefined;
  const { environment } = admitted;
  return { run: await admitQueuedRun(tx, runId, { environmentUid: environment.uid, owner, leaseMs }), environment };
}

const AT_ONCE = 50;

export async function failOverdueQueued({ db, retentionMs }: { db: Db; retentionMs: number }): Promise<void> {
  for (const runId of await queuedBeyondDeadline(db.query, AT_ONCE)) {
    const failure = {
      code: 'queue_timeout' as const,
      message: 'no room before the queue deadline; nothing was started',
    };
    await db.transaction((tx) => endQueuedRun(tx, runId, 'failed', retentionMs, failure));
  }
}

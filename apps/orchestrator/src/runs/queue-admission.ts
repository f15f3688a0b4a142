/**
 * Room for those that wait. Order: oldest first. A younger run that fits may pass an older one that does not, until the older one has
 * waited QUEUE_OVERTAKE_MS; from then on nothing passes it, so that many small runs cannot keep a big one out for ever.
 */
import type { Db, Tx } from '../db/db.ts';
import type { EnvironmentRow, RunRow } from '../db/schema.ts';
import type { EnvironmentService } from '../environments/environment-service.ts';
import { QUEUE_OVERTAKE_MS } from './run.ts';
import { admissionOf } from './run-admission.ts';
import { oldestQueued, queuedBeyondDeadline, tryLockQueue } from './run-queue.ts';
import { admitQueuedRun, endQueuedRun } from './run-store.ts';

export interface QueueContext {
  db: Db;
  environments: EnvironmentService;
  retentionMs: number;
}

/** One that fits, leased to `owner`; undefined when none does, or when another process is at it. */
export function admitNextQueued(
  context: QueueContext,
  { owner, leaseMs }: { owner: string; leaseMs: number },
): Promise<{ run: RunRow; environment: EnvironmentRow } | undefined> {
  return context.db.transaction(async (tx) => {
    if (!(await tryLockQueue(tx))) return undefined;
    const rejected = new Set<string>();
    for (const run of await oldestQueued(tx, QUEUE_DEPTH)) {
      const environment = await admit(context, tx, run, rejected);
      if (environment !== undefined)
        return {
          run: await admitQueuedRun(tx, run.id, { environmentUid: environment.uid, owner, leaseMs }),
          environment,
        };
      if (run.age_ms >= QUEUE_OVERTAKE_MS) return undefined;
    }
    return undefined;
  });
}

/** How far behind the first one is looked for a run that fits. */
const QUEUE_DEPTH = 50;

/** Equal shapes fare alike: each is tried once. */
async function admit(
  context: QueueContext,
  tx: Tx,
  run: RunRow,
  rejected: Set<string>,
): Promise<EnvironmentRow | undefined> {
  const alike = JSON.stringify([run.image, run.cpus, run.ram_mb, run.storage_gb]);
  if (rejected.has(alike)) return undefined;
  const admitted = await context.environments.admit(tx, admissionOf(run));
  if (admitted.kind === 'admitted') return admitted.environment;
  rejected.add(alike);
  return undefined;
}

export async function failOverdueQueued(context: QueueContext): Promise<void> {
  for (const runId of await queuedBeyondDeadline(context.db.query, QUEUE_DEPTH)) {
    const failure = {
      code: 'queue_timeout' as const,
      message: 'no room before the queue deadline; nothing was started',
    };
    await context.db.transaction((tx) => endQueuedRun(tx, runId, 'failed', context.retentionMs, failure));
  }
}

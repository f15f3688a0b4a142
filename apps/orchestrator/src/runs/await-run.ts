/** `wait: true`: until a run has ended, and for a moment more until its VM is gone, so that its timings are whole. */
import { isTerminalRunState } from '@fuse/contract';
import type { Db } from '../db/db.ts';
import type { EventHub } from '../events/events.ts';
import { findRun, type RunRecord } from './run-reads.ts';

const DESTROY_WAIT_MS = 5_000;

/** Undefined when the run does not exist (any more). Aborting ends the waiting, not the run. */
export async function awaitRun(
  { db, hub }: { db: Db; hub: EventHub },
  runId: string,
  signal: AbortSignal,
): Promise<RunRecord | undefined> {
  using runWaiter = hub.waiter(`run:${runId}`);
  for (;;) {
    const run = await findRun(db.query, runId);
    if (run === undefined) return undefined;
    if (isTerminalRunState(run.state)) return untilGone(db, hub, run, signal);
    await runWaiter.next(signal);
  }
}

async function untilGone(db: Db, hub: EventHub, ended: RunRecord, signal: AbortSignal): Promise<RunRecord | undefined> {
  if (ended.environment_uid === null || ended.destroy_ms !== null) return ended;
  using waiter = hub.waiter(`environment:${ended.environment_uid}`);
  const until = performance.now() + DESTROY_WAIT_MS;
  for (;;) {
    const run = await findRun(db.query, ended.id);
    const left = until - performance.now();
    if (run === undefined || run.destroy_ms !== null || left <= 0) return run;
    await waiter.next(signal, left);
  }
}

/** One run from wherever it stands to its end. */
import { isTerminalRunState } from '@fuse/contract';
import { sleep } from '@fuse/runtime';
import type { RunRow } from '../../db/schema.ts';
import { findHeldRun, HoldLost } from '../run-store.ts';
import type { Drive, DriveContext } from './drive.ts';
import { endRun } from './end-run.ts';
import { hasCode } from './host-retries.ts';
import { runStep } from './run-step.ts';
import { saveStep } from './save-step.ts';
import { startStep } from './start-step.ts';

const MAX_TRIES = 6;
const FIRST_DELAY_MS = 100;

/** Resolves with the ended run; undefined when it is somebody else's now, or this process stops. Its environment is `destroying`. */
export async function driveRun(context: DriveContext, drive: Drive, run: RunRow): Promise<RunRow | undefined> {
  let current = run;
  for (let tries = 1; ; tries += 1) {
    try {
      while (!isTerminalRunState(current.state)) current = await step(context, drive, current);
      await context.checkpoint('ended', current.id);
      return current;
    } catch (error) {
      if (drive.stop.aborted || error instanceof HoldLost) return undefined;
      context.log.error({ err: error, run_id: run.id, state: current.state, tries }, 'driving a run failed');
      if (tries >= MAX_TRIES && !hasCode(error, 'unavailable')) return endAsBroken(context, drive, current);
      await sleep(Math.min(FIRST_DELAY_MS * 2 ** tries, 5_000), drive.stop).catch(() => {});
    }
    drive.admitted = undefined;
    drive.at = undefined;
    drive.saving = undefined;
    const now = await readAgain(context, drive);
    if (now === undefined) return undefined;
    current = now;
  }
}

function step(context: DriveContext, drive: Drive, run: RunRow): Promise<RunRow> {
  switch (run.state) {
    case 'starting':
      return startStep(context, drive, run);
    case 'running':
      return runStep(context, drive, run);
    case 'saving':
      return saveStep(context, drive, run);
    default:
      throw new Error(`a ${run.state} run is not driven`);
  }
}

/** Undefined when the run is not ours any more. Waits while the database is away. */
async function readAgain(context: DriveContext, drive: Drive): Promise<RunRow | undefined> {
  while (!drive.stop.aborted) {
    try {
      return await findHeldRun(context.db.query, drive.hold);
    } catch (error) {
      context.log.warn({ err: error, run_id: drive.hold.runId }, 'a run cannot be read');
      await sleep(1_000, drive.stop).catch(() => {});
    }
  }
  return undefined;
}

/** Whatever is wrong with it stays wrong: every run ends. */
async function endAsBroken(context: DriveContext, drive: Drive, run: RunRow): Promise<RunRow | undefined> {
  const failure = { code: 'internal' as const, message: 'internal error' };
  try {
    return await endRun(context, drive, run, { to: 'failed', failure });
  } catch (error) {
    if (!(error instanceof HoldLost)) context.log.error({ err: error, run_id: run.id }, 'a run cannot be ended');
    return undefined;
  }
}

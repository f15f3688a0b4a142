/** The end: the terminal state, the outputs and the environment's `destroying` are one transaction. */
import type { Updateable } from 'kysely';
import { jsonb } from '../../db/db.ts';
import type { RunRow, RunsTable } from '../../db/schema.ts';
import { holdOutputBytes } from '../../quotas/take-quota.ts';
import { type Collection, outputRows, type SavedOutputs, withinQuota } from '../outputs.ts';
import type { RunFailure, RunOutcome } from '../run.ts';
import { ended, moveRun } from '../run-store.ts';
import type { Drive, DriveContext } from './drive.ts';

export interface RunEnd {
  to: RunOutcome;
  failure?: RunFailure;
  set?: Updateable<RunsTable>;
  collected?: Collection;
}

export async function endRun(context: DriveContext, drive: Drive, run: RunRow, end: RunEnd): Promise<RunRow> {
  const collected = end.collected === undefined ? undefined : outputRows(run.id, end.collected);
  const { row, saved } = await context.db.transaction(async (tx) => {
    const saved = collected && withinQuota(collected, await holdOutputBytes(tx, run.tenant_id));
    if (saved !== undefined && saved.rows.length > 0) await tx.insertInto('run_outputs').values(saved.rows).execute();
    const moved = await moveRun(tx, drive.hold, {
      from: run.state,
      to: end.to,
      failure: end.failure,
      set: { ...end.set, ...columnsOf(saved), ...ended(context.retentionMs) },
    });
    if (run.environment_uid !== null) await context.environments.beginDestroy(tx, run.environment_uid);
    return { row: moved, saved };
  });
  await dropObjects(context, row.id, saved?.droppedKeys ?? []);
  context.log.info(
    {
      run_id: row.id,
      state: row.state,
      exit_code: row.exit_code,
      error_code: row.error_code,
      outputs: saved?.rows.length ?? 0,
      timings: row.timings,
    },
    'run ended',
  );
  return row;
}

/** What is left of them goes with the run. */
async function dropObjects({ objectStore, log }: DriveContext, runId: string, keys: readonly string[]): Promise<void> {
  for (const key of keys)
    await objectStore.delete(key).catch((error: unknown) => {
      log.warn({ err: error, run_id: runId }, 'an output without room in its quota is kept until its run has expired');
    });
}

const columnsOf = (saved: SavedOutputs | undefined): Updateable<RunsTable> =>
  saved === undefined ? {} : { skipped_outputs: jsonb(saved.skipped), frames_object_key: saved.framesObjectKey };

/** The end: the terminal state, the outputs and the environment's `destroying` are one transaction. */
import type { CollectedOutputs } from '@fuse/host-protocol';
import type { Updateable } from 'kysely';
import { jsonb } from '../../db/db.ts';
import type { RunRow, RunsTable } from '../../db/schema.ts';
import { outputRows, type SavedOutputs } from '../outputs.ts';
import type { RunFailure, RunOutcome } from '../run.ts';
import { ended, moveRun } from '../run-store.ts';
import type { Drive, DriveContext } from './drive.ts';

export interface RunEnd {
  to: RunOutcome;
  failure?: RunFailure;
  set?: Updateable<RunsTable>;
  collected?: CollectedOutputs;
}

export async function endRun(context: DriveContext, drive: Drive, run: RunRow, end: RunEnd): Promise<RunRow> {
  const saved = end.collected === undefined ? undefined : outputRows(run.id, end.collected);
  const row = await context.db.transaction(async (tx) => {
    if (saved !== undefined && saved.rows.length > 0) await tx.insertInto('run_outputs').values(saved.rows).execute();
    const moved = await moveRun(tx, drive.hold, {
      from: run.state,
      to: end.to,
      failure: end.failure,
      set: { ...end.set, ...columnsOf(saved), ...ended(context.retentionMs) },
    });
    if (run.environment_uid !== null) await context.environments.beginDestroy(tx, run.environment_uid);
    return moved;
  });
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

const columnsOf = (saved: SavedOutputs | undefined): Updateable<RunsTable> =>
  saved === undefined ? {} : { skipped_outputs: jsonb(saved.skipped), frames_object_key: saved.framesObjectKey };

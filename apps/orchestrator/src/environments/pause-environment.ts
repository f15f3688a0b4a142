/** running -> pausing (committed) -> the host's VM paused -> paused, which holds nothing but its disk. Ten at once share one winner. */
import { AppError } from '@fuse/contract';
import type { EnvironmentRow } from '../db/schema.ts';
import { driveMove, driveOrWait, type MoveContext, requireLive } from './drive-move.ts';
import type { EnvironmentContext } from './environment-context.ts';
import { environmentByUid, isIdle, transition } from './environment-store.ts';
import { requireSavable } from './gpus.ts';
import { notRunning } from './not-running.ts';

export interface PauseOptions {
  /** Left alone when it was used meanwhile: resolves with the row as it is. */
  onlyIfIdle?: boolean;
}

export async function pauseEnvironment(
  context: MoveContext,
  uid: string,
  { onlyIfIdle = false }: PauseOptions,
  signal: AbortSignal,
): Promise<EnvironmentRow> {
  for (;;) {
    const row = requireLive(await environmentByUid(context.db.query, uid));
    if (row.state === 'paused') return row;
    if (row.state === 'pausing') {
      await driveOrWait(context, row, signal);
      continue;
    }
    if (row.state !== 'running') throw notRunning(row);
    const begun = await beginPause(context, row, onlyIfIdle);
    if (begun === 'in use') return row;
    const paused = begun === undefined ? undefined : await driveMove(context, begun, signal);
    if (paused !== undefined) return paused;
  }
}

/** Undefined: it changed since it was read. */
function beginPause(
  context: EnvironmentContext,
  row: EnvironmentRow,
  onlyIfIdle: boolean,
): Promise<EnvironmentRow | 'in use' | undefined> {
  if (row.run_id !== null)
    throw new AppError('conflict', `vm ${row.id} belongs to run ${row.run_id}`, {
      details: { state: row.state, run_id: row.run_id },
      hint: 'Environments of runs are not paused.',
    });
  requireSavable(row);
  const lease = { owner: context.owner, ms: context.startLeaseMs };
  return context.db.transaction(async (tx) => {
    // Holding the row: whoever uses it has stamped it before, or finds it pausing.
    const query = tx.selectFrom('environments').select('uid').where('uid', '=', row.uid).where(isIdle).forUpdate();
    if (onlyIfIdle && (await query.executeTakeFirst()) === undefined) return 'in use';
    return transition(tx, row, 'pausing', { error: null, lease });
  });
}

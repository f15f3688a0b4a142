/**
 * paused -> resuming (committed, its cpus, memory and slot taken in the same transaction) -> the host's VM runs -> running. A full host is
 * `unavailable` and leaves it paused. Ten at once share one winner.
 */
import { AppError } from '@fuse/contract';
import type { Tx } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { requireRoomToResume } from './admission.ts';
import { driveMove, driveOrWait, type MoveContext, requireLive } from './drive-move.ts';
import type { EnvironmentContext } from './environment-context.ts';
import { environmentByUid, transition } from './environment-store.ts';

export async function resumeEnvironment(
  context: MoveContext,
  uid: string,
  signal: AbortSignal,
): Promise<EnvironmentRow> {
  for (;;) {
    const row = requireLive(await environmentByUid(context.db.query, uid));
    if (row.state === 'running') return row;
    if (row.state === 'resuming') {
      await driveOrWait(context, row, signal);
      continue;
    }
    if (row.state !== 'paused')
      throw new AppError('conflict', `vm ${row.id} is ${row.state}, not paused`, { details: { state: row.state } });
    const begun = await context.db.transaction((tx) => beginResume(context, tx, row));
    const running = begun === undefined ? undefined : await driveMove(context, begun, signal);
    if (running !== undefined) return running;
  }
}

/** Undefined: it changed since it was read. */
async function beginResume(
  context: EnvironmentContext,
  tx: Tx,
  row: EnvironmentRow,
): Promise<EnvironmentRow | undefined> {
  await requireRoomToResume(context, tx, row);
  return transition(tx, row, 'resuming', {
    error: null,
    lease: { owner: context.owner, ms: context.startLeaseMs },
    columns: { restore_id: null, restore_snapshot_id: null },
  });
}

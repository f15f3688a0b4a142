/** Cancellation: of a queued run at once, of a driven one by telling its driver. A run that ended keeps its end. */
import { AppError, isTerminalRunState } from '@fuse/contract';
import { channels, type Db, notify, now } from '../db/db.ts';
import { endQueuedRun } from './run-store.ts';

/** 404 unknown, 409 ended otherwise than by cancellation. */
export function cancelRun(db: Db, tenantId: string, runId: string, retentionMs: number): Promise<void> {
  return db.transaction(async (tx) => {
    const run = await tx
      .selectFrom('runs')
      .select(['state', 'cancel_requested_at'])
      .where('id', '=', runId)
      .where('tenant_id', '=', tenantId)
      .forUpdate()
      .executeTakeFirst();
    if (run === undefined) throw runNotFound(runId);
    if (run.state === 'cancelled') return;
    if (isTerminalRunState(run.state))
      throw new AppError('conflict', `run ${runId} has ended already: ${run.state}`, { details: { state: run.state } });
    if (run.state === 'queued') {
      await endQueuedRun(tx, runId, 'cancelled', retentionMs);
      await notify(tx, channels.runs, 'left the queue');
      return;
    }
    if (run.cancel_requested_at === null)
      await tx.updateTable('runs').set({ cancel_requested_at: now, updated_at: now }).where('id', '=', runId).execute();
    await notify(tx, channels.runs, `cancel:${runId}`);
  });
}

export const runNotFound = (runId: string): AppError => new AppError('not_found', `run ${runId} not found`);

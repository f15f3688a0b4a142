/** saving -> the end: outputs and logs from the guest into the object store. The result is in the row already. */
import { randomBytes } from 'node:crypto';
import { AppError, MAX_OUTPUTS, RUN_WORKSPACE, type SkippedOutput } from '@fuse/contract';
import type { RunRow } from '../../db/schema.ts';
import { outputBytesLeft } from '../../quotas/take-quota.ts';
import { outputsPrefix } from '../object-keys.ts';
import type { Collection } from '../outputs.ts';
import { storableText } from '../storable-text.ts';
import { type Collected, type Drive, type DriveContext, requestOf, type Whereabouts, whereaboutsOf } from './drive.ts';
import { endRun } from './end-run.ts';
import { hasCode, untilHostAnswers } from './host-retries.ts';

export async function saveStep(context: DriveContext, drive: Drive, run: RunRow): Promise<RunRow> {
  const { outcome } = run;
  if (outcome === null) throw new Error(`run ${run.id} is saving and has no result`);
  const saved = await (drive.saving ?? collectAll(context, drive, run, await whereaboutsOf(context, drive, run)));
  await context.checkpoint('outputs saved', run.id);
  if (saved.error === undefined || drive.cancel.aborted)
    return endRun(context, drive, run, {
      to: drive.cancel.aborted ? 'cancelled' : outcome,
      ...(saved.collected === undefined ? {} : { collected: saved.collected }),
    });
  const message = `the command ended, its outputs could not be saved: ${storableText(saved.error.message)}`;
  return endRun(context, drive, run, {
    to: 'failed',
    failure: { code: 'save_failed', message },
    ...(saved.collected === undefined ? {} : { collected: saved.collected }),
  });
}

/** Cancelled, or with a VM that gives nothing any more, the logs alone: those are on the host. */
export async function collectAll(
  context: DriveContext,
  drive: Drive,
  run: RunRow,
  at: Whereabouts,
): Promise<Collected> {
  const globs = run.outcome === 'cancelled' || drive.cancel.aborted ? [] : requestOf(run).outputs;
  let failure: AppError | undefined;
  if (globs.length > 0) {
    try {
      return { collected: await collect(context, run, at, globs, AbortSignal.any([drive.stop, drive.cancel])) };
    } catch (error) {
      drive.stop.throwIfAborted();
      if (!drive.cancel.aborted) {
        if (!(error instanceof AppError)) throw error;
        failure = error;
      }
    }
  }
  try {
    const collected = await collectLogs(context, run, at, drive.stop);
    return failure === undefined ? { collected } : { collected, error: failure };
  } catch (error) {
    drive.stop.throwIfAborted();
    if (!(error instanceof AppError)) throw error;
    return { error: failure ?? error };
  }
}

export const collectLogs = (context: DriveContext, run: RunRow, at: Whereabouts, signal: AbortSignal) =>
  collect(context, run, at, [], signal);

async function collect(
  context: DriveContext,
  run: RunRow,
  { host, environment, execId }: Whereabouts,
  globs: string[],
  signal: AbortSignal,
): Promise<Collection> {
  const { maxOutputFileBytes, maxOutputTotalBytes } = context.limits;
  const left = globs.length === 0 ? undefined : await outputBytesLeft(context.db.query, run.tenant_id);
  const isCutByQuota = left !== undefined && left < maxOutputTotalBytes;
  const attempt = () =>
    host.collectOutputs(
      environment.vm_id,
      {
        cwd: RUN_WORKSPACE,
        globs,
        // Of this attempt alone: an earlier one may still be writing.
        key_prefix: outputsPrefix(run.id, randomBytes(4).toString('hex')),
        max_files: MAX_OUTPUTS,
        max_file_bytes: maxOutputFileBytes,
        max_total_bytes: isCutByQuota ? Math.max(1, left) : maxOutputTotalBytes,
        exec_id: execId,
      },
      signal,
    );
  const collected = await untilHostAnswers(attempt, {
    signal,
    giveUpAfterMs: context.hostLostAfterMs,
    // The object store, not the host, is away.
    also: (error) => hasCode(error, 'unavailable'),
  });
  return isCutByQuota ? { ...collected, skipped: collected.skipped.map(skippedByQuota) } : collected;
}

const skippedByQuota = ({ path, reason }: SkippedOutput): SkippedOutput => ({
  path,
  reason: reason === 'total_too_large' ? 'quota_exceeded' : reason,
});

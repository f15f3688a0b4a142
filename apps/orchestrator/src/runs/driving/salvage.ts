/** What a host still has of a command whose end is not known: its output so far. Best effort, and quick. */
import { RESULT_STREAM_LIMIT_BYTES } from '@fuse/contract';
import { withDeadline } from '@fuse/runtime';
import type { Updateable } from 'kysely';
import type { RunRow, RunsTable } from '../../db/schema.ts';
import type { DriveContext, Whereabouts } from './drive.ts';
import type { RunEnd } from './end-run.ts';
import { headColumns } from './result-columns.ts';
import { collectLogs } from './save-step.ts';

const SALVAGE_MS = 10_000;

export async function salvage(
  context: DriveContext,
  run: RunRow,
  at: Whereabouts,
): Promise<Pick<RunEnd, 'set' | 'collected'>> {
  const attempt = async <T>(what: string, work: (signal: AbortSignal) => Promise<T>): Promise<T | undefined> => {
    try {
      return await withDeadline(SALVAGE_MS, what, work);
    } catch (error) {
      context.log.warn({ err: error, run_id: run.id }, `${what} failed`);
      return undefined;
    }
  };
  const [result, collected] = await Promise.all([
    attempt('reading what is left of a result', (signal) =>
      at.host.execResult(at.environment.vm_id, at.execId, RESULT_STREAM_LIMIT_BYTES, signal),
    ),
    attempt('saving what is left of a log', (signal) => collectLogs(context, run, at, signal)),
  ]);
  const set: Updateable<RunsTable> =
    result === undefined ? {} : { ...headColumns(result), log_truncated: result.exec.log_truncated };
  return { set, ...(collected === undefined ? {} : { collected }) };
}

/**
 * running -> saving: start the command (the host starts it once for an id), wait for its end, read its result. A VM that is not there
 * any more is `vm_lost`: nobody can tell how far the command came, so it is not run again.
 */
import { AppError, RESULT_STREAM_LIMIT_BYTES } from '@fuse/contract';
import type { HostExec, HostExecResult } from '@fuse/host-protocol';
import type { RunRow } from '../../db/schema.ts';
import { isHostUnreachable } from '../../hosts/host-transport.ts';
import { outcomeOf } from '../run.ts';
import { openCommand } from '../run-secrets.ts';
import { moveRun } from '../run-store.ts';
import { storableText } from '../storable-text.ts';
import { type Drive, type DriveContext, requestOf, type Whereabouts, whereaboutsOf } from './drive.ts';
import { endRun } from './end-run.ts';
import { hasCode, untilHostAnswers } from './host-retries.ts';
import { headColumns } from './result-columns.ts';
import { salvage } from './salvage.ts';
import { collectAll } from './save-step.ts';
import { putFiles } from './start-step.ts';
import { waitForExec } from './wait-for-exec.ts';

export async function runStep(context: DriveContext, drive: Drive, run: RunRow): Promise<RunRow> {
  const at = await whereaboutsOf(context, drive, run);
  let exec: HostExec | undefined;
  try {
    if (drive.markedRunning || !(await wasStarted(context, drive, run, at))) await startExec(context, drive, run, at);
    await context.checkpoint('exec started', run.id);
    exec = await waitForExec(context, drive, run, at);
  } catch (error) {
    drive.stop.throwIfAborted();
    if (!(error instanceof AppError)) throw error;
    return endWithoutResult(context, drive, run, at, error);
  }
  if (exec === undefined) return endRun(context, drive, run, { to: 'cancelled', ...(await salvage(context, run, at)) });
  if (exec.exit === undefined)
    return endWithoutResult(context, drive, run, at, new AppError('vm_lost', exec.error ?? 'the VM died'));
  await context.checkpoint('exec ended', run.id);
  const { exit } = exec;
  // Only KILL ends a command that is cancelled; one that ended by itself meanwhile keeps its own end.
  const outcome = outcomeOf(exit, drive.cancel.aborted && exit.signal !== undefined);
  drive.saving = collectAll(context, drive, { ...run, outcome }, at);
  drive.saving.catch(() => {}); // saveStep waits for it
  const result = await readResult(context, drive, at);
  const saving = await context.db.transaction((tx) =>
    moveRun(tx, drive.hold, {
      from: 'running',
      to: 'saving',
      set: {
        outcome,
        exit_code: exit.exit_code,
        signal: exit.signal === undefined ? null : storableText(exit.signal, 32),
        oom_killed: exit.oom_killed,
        stdout_bytes: exit.stdout_bytes,
        stderr_bytes: exit.stderr_bytes,
        log_truncated: exec.log_truncated,
        ...(result === undefined ? {} : headColumns(result)),
      },
    }),
  );
  await context.checkpoint('marked saving', run.id);
  return saving;
}

/** Another driver marked this run `running`. Throws when its VM is not there any more. */
async function wasStarted(context: DriveContext, drive: Drive, run: RunRow, at: Whereabouts): Promise<boolean> {
  const { host, environment, execId } = at;
  const retry = { signal: drive.stop, giveUpAfterMs: context.hostLostAfterMs };
  try {
    await untilHostAnswers(() => host.exec(environment.vm_id, execId, 0, drive.stop), retry);
    return true;
  } catch (error) {
    if (!hasCode(error, 'not_found')) throw error;
  }
  const vm = await untilHostAnswers(() => host.vm(environment.vm_id, drive.stop), retry);
  if (vm.state !== 'running') throw new AppError('vm_lost', vm.error ?? `the VM is ${vm.state}`);
  await putFiles(context, run, at, drive.stop);
  return false;
}

async function startExec(context: DriveContext, drive: Drive, run: RunRow, at: Whereabouts): Promise<void> {
  const request = requestOf(run);
  const body = {
    ...openCommand(context.sealer, run),
    cwd: request.cwd,
    timeout_ms: run.timeout_ms,
    ...(request.stdin_object_key === undefined ? {} : { stdin_object_key: request.stdin_object_key }),
    max_log_bytes: context.limits.maxLogBytes,
  };
  await untilHostAnswers(() => at.host.startExec(at.environment.vm_id, at.execId, body, drive.stop), {
    signal: drive.stop,
    giveUpAfterMs: context.hostLostAfterMs,
  });
}

async function readResult(context: DriveContext, drive: Drive, at: Whereabouts): Promise<HostExecResult | undefined> {
  const read = () => at.host.execResult(at.environment.vm_id, at.execId, RESULT_STREAM_LIMIT_BYTES, drive.stop);
  try {
    return await untilHostAnswers(read, { signal: drive.stop, giveUpAfterMs: context.hostLostAfterMs });
  } catch (error) {
    drive.stop.throwIfAborted();
    // The exit is known; `saving` will say what is missing.
    context.log.warn({ err: error, vm_id: at.environment.vm_id }, 'result of an ended command cannot be read');
    return undefined;
  }
}

async function endWithoutResult(
  context: DriveContext,
  drive: Drive,
  run: RunRow,
  at: Whereabouts,
  error: AppError,
): Promise<RunRow> {
  const message = storableText(error.message);
  // `internal`: the host refuses us, or says what the protocol does not know.
  if (isHostUnreachable(error) || hasCode(error, 'internal'))
    return endRun(context, drive, run, { to: 'failed', failure: { code: 'host_lost', message } });
  if (hasCode(error, 'invalid_argument'))
    return endRun(context, drive, run, { to: 'failed', failure: { code: 'exec_failed', message } });
  const left = await salvage(context, run, at);
  if (drive.cancel.aborted) return endRun(context, drive, run, { to: 'cancelled', ...left });
  const failure = { code: 'vm_lost' as const, message: `the VM died while the command ran: ${message}` };
  return endRun(context, drive, run, { to: 'failed', failure, ...left });
}

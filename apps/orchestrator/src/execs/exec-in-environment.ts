/**
 * One command in a running environment: started once by an id of ours, waited for at its host, its output's head brought back.
 * The host agent may restart meanwhile; the command goes on and is asked for again. When the VM dies the answer is `vm_lost`, at once.
 */
import { AppError, type Encoding, type ExecResult } from '@fuse/contract';
import type { HostExec, StartExec } from '@fuse/host-protocol';
import type { EnvironmentRow } from '../db/schema.ts';
import type { EnvironmentContext } from '../environments/environment-context.ts';
import { noteLoss } from '../environments/note-loss.ts';
import { type HostClient, MAX_WAIT_MS } from '../hosts/host-client.ts';
import { persistently } from '../hosts/host-retries.ts';
import { toExecResult } from './exec-view.ts';
import { inUse } from './in-use.ts';

/** Of each stream; the rest is counted. */
export const EXEC_RESULT_LIMIT_BYTES = 1_048_576;
/** A command that ends within this costs one call. A client that goes away is noticed as late at most. */
const SHORT_EXEC_MS = 2_000;

export interface ExecOrder {
  /** Started at most once, however often it is ordered. */
  execId: string;
  command: StartExec;
  encoding: Encoding;
  /** Also when `signal` is aborted. */
  keepRunning: boolean;
  /** It runs, and is being waited for: from now on there is a result, or its loss. */
  onStarted: () => void;
}

/** `conflict`: the VM was paused first, and it was not started. */
export async function execInEnvironment(
  context: EnvironmentContext,
  row: EnvironmentRow,
  { execId, command, encoding, keepRunning, onStarted }: ExecOrder,
  signal: AbortSignal,
): Promise<ExecResult> {
  const client = await context.hosts.client(row.host_id);
  using _ = inUse(context.db.query, row);
  try {
    const order = { command, waitMs: SHORT_EXEC_MS, limitBytes: EXEC_RESULT_LIMIT_BYTES };
    const start = () => client.startShortExec(row.vm_id, execId, order);
    const find = () => client.exec(row.vm_id, execId, 0, signal);
    const exec = await persistently(context.hostRetryMs, start, signal).catch((refusal: unknown) =>
      findRefused(refusal, () => persistently(context.hostRetryMs, find, signal)),
    );
    signal.throwIfAborted(); // the start itself goes on to its answer: until then nobody knows what to kill
    if (exec.result !== undefined) return toExecResult(execId, { exec, ...exec.result }, encoding);
    onStarted();
    await waitForEnd(context, client, row.vm_id, execId, signal);
    const result = await persistently(
      context.hostRetryMs,
      () => client.execResult(row.vm_id, execId, EXEC_RESULT_LIMIT_BYTES, signal),
      signal,
    );
    return toExecResult(execId, result, encoding);
  } catch (error) {
    if (signal.aborted && !keepRunning) await kill(context, client, row.vm_id, execId);
    await noteLoss(context, row, error);
    throw asExecError(row, error);
  }
}

/** Refused because the VM was just being paused, it may have been on its way all the same: then it is waited for like any other. */
async function findRefused(refusal: unknown, find: () => Promise<HostExec>): Promise<HostExec> {
  if (!(refusal instanceof AppError) || refusal.code !== 'conflict') throw refusal;
  try {
    return await find();
  } catch (error) {
    throw error instanceof AppError && error.code === 'not_found' ? refusal : error;
  }
}

async function waitForEnd(
  context: EnvironmentContext,
  client: HostClient,
  vmId: string,
  execId: string,
  signal: AbortSignal,
): Promise<HostExec> {
  for (;;) {
    const exec = await persistently(context.hostRetryMs, () => client.exec(vmId, execId, MAX_WAIT_MS, signal), signal);
    if (exec.state === 'exited') return exec;
    if (exec.state === 'lost') throw new AppError('vm_lost', exec.error ?? 'the end of the command is not known');
  }
}

async function kill(context: EnvironmentContext, client: HostClient, vmId: string, execId: string): Promise<void> {
  await client.killExec(vmId, execId).catch((error: unknown) => {
    context.log.warn({ err: error, vm_id: vmId, exec_id: execId }, 'abandoned exec not killed');
  });
}

export function asExecError(row: EnvironmentRow, error: unknown): unknown {
  if (!(error instanceof AppError)) return error;
  if (error.code === 'invalid_argument' && error.details?.reason === 'exec_failed')
    return new AppError('invalid_argument', error.message, {
      details: { ...error.details, field: 'cmd' },
      hint: 'Program, working directory and user must exist in the environment, and the program be executable.',
      cause: error,
    });
  // The host does not know the VM or the exec any more.
  if (error.code === 'not_found' || error.code === 'vm_lost')
    return new AppError('vm_lost', `vm ${row.id} was lost: ${error.message}`, {
      hint: 'How the command ended is not known; it is not run again.',
      cause: error,
    });
  return error;
}

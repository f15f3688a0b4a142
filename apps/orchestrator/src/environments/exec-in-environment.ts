/**
 * One command in a running environment: started once by an id of ours, waited for at its host, its output's head brought back.
 * The host agent may restart meanwhile; the command goes on and is asked for again. When the VM dies the answer is `vm_lost`, at once.
 */
import {
  AppError,
  type Encoding,
  EXEC_DEFAULT_TIMEOUT_MS,
  EXEC_MAX_TIMEOUT_MS,
  type ExecRequest,
  type ExecResult,
  invalidField,
} from '@fuse/contract';
import type { HostExec, HostExecResult, StartExec } from '@fuse/host-protocol';
import { sleep } from '@fuse/runtime';
import type { EnvironmentRow } from '../db/schema.ts';
import { type HostClient, MAX_WAIT_MS } from '../hosts/host-client.ts';
import { isHostUnreachable } from '../hosts/host-transport.ts';
import type { EnvironmentContext } from './environment-context.ts';
import { touch } from './environment-store.ts';
import { decodeUtf8 } from './exec-text.ts';
import { noteLoss } from './note-loss.ts';
import { TOUCH_GRAIN_MS } from './ready.ts';

/** Of each stream; the rest is counted. */
export const EXEC_RESULT_LIMIT_BYTES = 1_048_576;
const MAX_LOG_BYTES = 8 * 1_048_576;
const TIMED_OUT_EXIT_CODE = 124;
const TOUCH_MS = 15_000;
/** A command that ends within this costs one call. A client that goes away is noticed as late at most. */
const SHORT_EXEC_MS = 2_000;
const LOOK_AGAIN_MS = 250;

export interface ExecOrder {
  /** Started at most once, however often it is ordered. */
  execId: string;
  command: StartExec;
  encoding: Encoding;
}

/** `conflict`: the VM was paused first, and it was not started. */
export async function execInEnvironment(
  context: EnvironmentContext,
  row: EnvironmentRow,
  { execId, command, encoding }: ExecOrder,
  signal: AbortSignal,
): Promise<ExecResult> {
  const client = await context.hosts.client(row.host_id);
  const stamp = () => void touch(context.db.query, row.uid).catch(() => {}); // only the idle clock
  if (Math.abs(Date.now() - row.last_activity_at.getTime()) > TOUCH_GRAIN_MS) stamp();
  const startedAt = performance.now();
  const stamping = setInterval(stamp, TOUCH_MS);
  try {
    const order = { command, waitMs: SHORT_EXEC_MS, limitBytes: EXEC_RESULT_LIMIT_BYTES };
    const start = () => client.startShortExec(row.vm_id, execId, order);
    const find = () => client.exec(row.vm_id, execId, 0, signal);
    const exec = await persistently(context, signal, start).catch((refusal: unknown) =>
      findRefused(refusal, () => persistently(context, signal, find)),
    );
    if (exec.result !== undefined) return toExecResult(execId, { exec, ...exec.result }, encoding);
    await waitForEnd(context, client, row.vm_id, execId, signal);
    const result = await persistently(context, signal, () =>
      client.execResult(row.vm_id, execId, EXEC_RESULT_LIMIT_BYTES, signal),
    );
    return toExecResult(execId, result, encoding);
  } catch (error) {
    if (signal.aborted) await kill(context, client, row.vm_id, execId);
    await noteLoss(context, row, error);
    throw asExecError(row, error);
  } finally {
    clearInterval(stamping);
    if (performance.now() - startedAt > TOUCH_GRAIN_MS) stamp();
  }
}

export function toStartExec(request: ExecRequest): StartExec {
  const cmd = request.cmd !== undefined && request.cmd.length > 0 ? request.cmd : undefined;
  const shell = request.shell !== undefined && request.shell !== '' ? request.shell : undefined;
  if (cmd !== undefined && shell !== undefined)
    throw new AppError('invalid_argument', 'cmd and shell are mutually exclusive', { details: { field: 'cmd' } });
  const argv = cmd ?? (shell === undefined ? undefined : ['sh', '-lc', shell]);
  if (argv === undefined)
    throw new AppError('invalid_argument', 'one of cmd or shell is required', { details: { field: 'cmd' } });
  if (argv[0] === '') throw invalidField('cmd.0', 'the program name must not be empty');
  const withNul = argv.findIndex((arg) => arg.includes('\0'));
  if (withNul >= 0) throw invalidField(cmd === undefined ? 'shell' : `cmd.${withNul}`, 'must not hold NUL');
  const timeoutMs =
    request.timeout_ms === undefined || request.timeout_ms === 0 ? EXEC_DEFAULT_TIMEOUT_MS : request.timeout_ms;
  return {
    argv,
    timeout_ms: Math.min(timeoutMs, EXEC_MAX_TIMEOUT_MS),
    max_log_bytes: MAX_LOG_BYTES,
    ...(request.env === undefined ? {} : { env: request.env }),
    ...(request.cwd === undefined ? {} : { cwd: request.cwd }),
    ...(request.user === undefined ? {} : { user: request.user }),
  };
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
    const exec = await persistently(context, signal, () => client.exec(vmId, execId, MAX_WAIT_MS, signal));
    if (exec.state === 'exited') return exec;
    if (exec.state === 'lost') throw new AppError('vm_lost', exec.error ?? 'the end of the command is not known');
  }
}

/** Every call names the same exec, so asking again never runs anything twice. */
async function persistently<T>(context: EnvironmentContext, signal: AbortSignal, call: () => Promise<T>): Promise<T> {
  const giveUpAt = performance.now() + context.hostRetryMs;
  for (;;) {
    try {
      const answer = await call();
      signal.throwIfAborted();
      return answer;
    } catch (error) {
      if (!isHostUnreachable(error) || performance.now() > giveUpAt) throw error;
      await sleep(LOOK_AGAIN_MS, signal);
    }
  }
}

async function kill(context: EnvironmentContext, client: HostClient, vmId: string, execId: string): Promise<void> {
  await client.killExec(vmId, execId).catch((error: unknown) => {
    context.log.warn({ err: error, vm_id: vmId, exec_id: execId }, 'abandoned exec not killed');
  });
}

function asExecError(row: EnvironmentRow, error: unknown): unknown {
  if (!(error instanceof AppError)) return error;
  if (error.code === 'invalid_argument' && error.details?.reason === 'exec_failed')
    return new AppError('invalid_argument', error.message, {
      details: { ...error.details, field: 'cmd' },
      hint: 'The program must exist in the image and be executable.',
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

function toExecResult(execId: string, result: HostExecResult, encoding: 'utf8' | 'base64'): ExecResult {
  const { exit } = result.exec;
  if (exit === undefined) throw new Error(`exec ${execId}: the host gave a result without an exit`);
  const stdout = Buffer.from(result.stdout_base64, 'base64');
  const stderr = Buffer.from(result.stderr_base64, 'base64');
  const streams = encoding === 'base64' ? inBase64(result) : inUtf8(stdout, stderr, exit);
  return {
    exec_id: execId,
    exit_code: exit.timed_out ? TIMED_OUT_EXIT_CODE : exit.exit_code,
    ...streams,
    encoding,
    stdout_bytes: exit.stdout_bytes,
    stderr_bytes: exit.stderr_bytes,
    truncated: result.truncated,
    ...(exit.signal === undefined ? {} : { signal: exit.signal }),
    timed_out: exit.timed_out,
    oom_killed: exit.oom_killed,
    duration_ms: Math.round(exit.duration_ms),
  };
}

const inBase64 = ({ stdout_base64, stderr_base64 }: HostExecResult) => ({
  stdout: stdout_base64,
  stderr: stderr_base64,
});

function inUtf8(stdout: Buffer, stderr: Buffer, counts: { stdout_bytes: number; stderr_bytes: number }) {
  const out = decodeUtf8(stdout, stdout.length < counts.stdout_bytes);
  const err = decodeUtf8(stderr, stderr.length < counts.stderr_bytes);
  return { stdout: out.text, stderr: err.text, ...(out.lossy || err.lossy ? { lossy: true } : {}) };
}

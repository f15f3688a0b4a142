/** One command to its end. Its id is chosen here, so that after a lost connection it is asked for instead of run again. */
import { type ExecRequest, ExecResult } from '@fuse/contract';
import { environmentPath } from './environment-path.ts';
import { FuseApiError, FuseConnectionError, FuseError, isNotFound } from './errors.ts';
import { type ExecRef, execResultOf, killQuietly, waitForExec } from './exec-calls.ts';
import { GOOD_CONNECTION_MS, PATIENCE_MS } from './persist.ts';
import { backoffMs, isPassing } from './retry.ts';
import type { CallOptions } from './run-outputs.ts';
import { STALL_MS, sleep } from './sleep.ts';
import type { Transport } from './transport.ts';

export async function runExec(
  transport: Transport,
  environmentId: string,
  request: ExecRequest,
  options: CallOptions,
): Promise<ExecResult> {
  if ((request.cmd === undefined) === (request.shell === undefined))
    throw new FuseError('exactly one of cmd and shell is required');
  options.signal?.throwIfAborted();
  const exec: ExecRef = { environmentId, execId: request.id ?? crypto.randomUUID() };
  try {
    return await toItsEnd(transport, exec, { ...request, id: exec.execId, keep_running: true }, options);
  } catch (error) {
    if (options.signal?.aborted) void killQuietly(transport, exec); // never rejects
    throw error;
  }
}

async function toItsEnd(
  transport: Transport,
  exec: ExecRef,
  request: ExecRequest,
  { signal }: CallOptions,
): Promise<ExecResult> {
  const call = signal === undefined ? {} : { signal };
  const start = () =>
    transport.json(ExecResult, {
      method: 'POST',
      path: environmentPath(exec.environmentId),
      query: { action: 'exec' },
      json: request,
      repeat: 'if-unsent',
      timeoutMs: null,
      stallMs: STALL_MS,
      ...call,
    });
  const lookUp = async () => {
    await waitForExec(transport, exec, call);
    return await execResultOf(transport, exec, { ...call, encoding: request.encoding ?? 'utf8' });
  };
  let ask = start;
  let lastHeardAt = performance.now();
  for (let attempt = 0; ; attempt++) {
    const askedAt = performance.now();
    try {
      return await ask();
    } catch (error) {
      const unheard = ask === lookUp && isNotFound(error);
      if (!unheard && !mayHideAnAnswer(error, ask === start)) throw error;
      const now = performance.now();
      if (now - askedAt >= GOOD_CONNECTION_MS) lastHeardAt = now;
      if (now - lastHeardAt >= PATIENCE_MS) throw error;
      if (!unheard) await sleep(backoffMs(attempt, transport.config.random), signal);
      ask = unheard ? start : lookUp;
    }
  }
}

/** A refusal of our own server is an answer, and what never left was never heard. */
function mayHideAnAnswer(error: unknown, starting: boolean): boolean {
  if (!isPassing(error)) return false;
  if (error instanceof FuseConnectionError) return error.sent || !starting;
  return error instanceof FuseApiError && error.code === '';
}

/** Single calls about one exec, shared by what is made of them. */
import { Exec, ExecResult, ExecStdin } from '@fuse/contract';
import { environmentPath } from './environment-path.ts';
import { isNotFound } from './errors.ts';
import type { CallOptions } from './run-outputs.ts';
import { sleep } from './sleep.ts';
import type { Transport } from './transport.ts';

export interface ExecRef {
  environmentId: string;
  execId: string;
}

/** Long enough to be rare, short enough for whatever is on the way. */
const WAIT_MS = 30_000;
const KILL_TIMEOUT_MS = 5_000;
const KILL_AGAIN_MS = 500;

export const execPath = ({ environmentId, execId }: ExecRef): string =>
  `${environmentPath(environmentId)}/execs/${encodeURIComponent(execId)}`;

export interface GetExecOptions extends CallOptions {
  /** Answered at its end, or after so long. */
  waitMs?: number;
}

export function getExec(transport: Transport, exec: ExecRef, { waitMs, signal }: GetExecOptions = {}): Promise<Exec> {
  return transport.json(Exec, {
    method: 'GET',
    path: execPath(exec),
    query: { wait_ms: waitMs },
    repeat: 'freely',
    ...(waitMs === undefined ? {} : { timeoutMs: null }),
    signal,
  });
}

/** Once it does not run any more, or after `deadlineMs` as it is then. */
export async function waitForExec(
  transport: Transport,
  exec: ExecRef,
  { deadlineMs = Number.POSITIVE_INFINITY, signal }: CallOptions & { deadlineMs?: number } = {},
): Promise<Exec> {
  const until = performance.now() + deadlineMs;
  for (;;) {
    const waitMs = Math.ceil(Math.min(WAIT_MS, Math.max(0, until - performance.now())));
    const now = await getExec(transport, exec, { waitMs, ...(signal === undefined ? {} : { signal }) });
    if (now.state !== 'running' || performance.now() >= until) return now;
  }
}

export function execResultOf(
  transport: Transport,
  exec: ExecRef,
  { encoding, signal }: CallOptions & { encoding?: 'utf8' | 'base64' } = {},
): Promise<ExecResult> {
  const path = `${execPath(exec)}/result`;
  return transport.json(ExecResult, { method: 'GET', path, query: { encoding }, repeat: 'freely', signal });
}

export interface StdinPiece {
  bytes: Uint8Array | ReadableStream<Uint8Array>;
  /** Of its stdin; undefined: appended. */
  offset: number | undefined;
  end: boolean;
}

/** Waits until the command has taken it, however long. Repeating it is the caller's: with an offset it does no harm. */
export function postStdin(
  transport: Transport,
  exec: ExecRef,
  { bytes, offset, end }: StdinPiece,
  signal?: AbortSignal,
): Promise<ExecStdin> {
  return transport.json(ExecStdin, {
    method: 'POST',
    path: `${execPath(exec)}/stdin`,
    query: { offset: offset === undefined ? undefined : String(offset), end: end ? '1' : undefined },
    headers: { 'Content-Type': 'application/octet-stream' },
    body: () => bytes,
    repeat: offset === undefined ? 'if-unsent' : 'never',
    timeoutMs: null,
    signal,
  });
}

/**
 * For commands whose caller gave up: it hears of that, not of this. One that the server does not know may be on its way to its start: it is looked for a
 * little longer. Never rejects.
 */
export async function killQuietly(transport: Transport, exec: ExecRef): Promise<void> {
  const signal = AbortSignal.timeout(KILL_TIMEOUT_MS);
  for (;;) {
    try {
      await transport.none({ method: 'DELETE', path: execPath(exec), repeat: 'freely', signal });
      return;
    } catch (error) {
      if (!isNotFound(error)) return;
    }
    await sleep(KILL_AGAIN_MS, signal).catch(() => {});
    if (signal.aborted) return;
  }
}

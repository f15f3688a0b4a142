/** Commands as the public API shows them. */
import {
  AppError,
  type Encoding,
  type Exec,
  type ExecExit,
  type ExecResult,
  TIMED_OUT_EXIT_CODE,
} from '@fuse/contract';
import type { GuestExecExit, HostExec, HostExecResult } from '@fuse/host-protocol';
import { decodeUtf8 } from './exec-text.ts';

export function toExec(exec: HostExec): Exec {
  return {
    id: exec.id,
    state: exec.state,
    command: exec.argv,
    ...(exec.cwd === undefined ? {} : { cwd: exec.cwd }),
    ...(exec.user === undefined ? {} : { user: exec.user }),
    ...(exec.tty === undefined ? {} : { tty: exec.tty }),
    stdin_open: exec.stdin_open,
    created_at: exec.created_at,
    ...(exec.ended_at === undefined ? {} : { ended_at: exec.ended_at }),
    ...(exec.exit === undefined ? {} : { exit: toExecExit(exec.exit) }),
    ...(exec.error === undefined ? {} : { error: exec.error }),
    log_end: exec.log_bytes,
    ...(exec.log_gap === undefined ? {} : { log_gap: exec.log_gap }),
  };
}

export function toExecExit(exit: GuestExecExit): ExecExit {
  return {
    exit_code: exit.timed_out ? TIMED_OUT_EXIT_CODE : exit.exit_code,
    ...(exit.signal === undefined ? {} : { signal: exit.signal }),
    timed_out: exit.timed_out,
    oom_killed: exit.oom_killed,
    stdout_bytes: exit.stdout_bytes,
    stderr_bytes: exit.stderr_bytes,
    duration_ms: Math.round(exit.duration_ms),
  };
}

export function toExecResult(execId: string, result: HostExecResult, encoding: Encoding): ExecResult {
  const { exit } = result.exec;
  if (exit === undefined) throw new Error(`exec ${execId}: the host gave a result without an exit`);
  const { exit_code, stdout_bytes, stderr_bytes, ...end } = toExecExit(exit);
  const streams = encoding === 'base64' ? inBase64(result) : inUtf8(result, exit);
  return {
    exec_id: execId,
    exit_code,
    ...streams,
    encoding,
    stdout_bytes,
    stderr_bytes,
    truncated: result.truncated,
    ...end,
  };
}

/** Of one whose end is not known: there is no result, and no made-up one. */
export const lost = (execId: string, why: string | undefined): AppError =>
  new AppError('vm_lost', `exec ${execId} was lost: ${why ?? 'the end of the command is not known'}`, {
    details: { exec_id: execId },
    hint: 'How the command ended is not known; it is not run again.',
  });

const inBase64 = ({ stdout_base64, stderr_base64 }: HostExecResult) => ({
  stdout: stdout_base64,
  stderr: stderr_base64,
});

function inUtf8(
  { stdout_base64, stderr_base64 }: HostExecResult,
  counts: { stdout_bytes: number; stderr_bytes: number },
) {
  const stdout = Buffer.from(stdout_base64, 'base64');
  const stderr = Buffer.from(stderr_base64, 'base64');
  const out = decodeUtf8(stdout, stdout.length < counts.stdout_bytes);
  const err = decodeUtf8(stderr, stderr.length < counts.stderr_bytes);
  return { stdout: out.text, stderr: err.text, ...(out.lossy || err.lossy ? { lossy: true } : {}) };
}

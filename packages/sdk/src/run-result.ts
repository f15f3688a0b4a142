import type { Run, RunErrorCode, RunOutput, RunState, RunTimings, SkippedOutput } from '@fuse/contract';
import { bytesFromBase64 } from './run-events.ts';

/** How a run ended. A command that exits with 3 has a result; look at `error` for runs that have none. */
export interface RunResult {
  readonly id: string;
  readonly state: RunState;
  /** True when the command ran to its end and exited with 0, and everything that it left was saved. */
  readonly ok: boolean;
  /** Absent when the command never ran or its end is unknown. */
  readonly exitCode: number | undefined;
  readonly signal: string | undefined;
  readonly timedOut: boolean;
  readonly oomKilled: boolean;
  /** The head of each stream as text, at most 256 KiB; the whole is among the outputs as a log. */
  readonly stdout: string;
  readonly stderr: string;
  readonly stdoutBytes: number;
  readonly stderrBytes: number;
  readonly truncated: boolean;
  readonly outputs: readonly RunOutput[];
  readonly skippedOutputs: readonly SkippedOutput[];
  /** Why the run has no truthful result of its own command. */
  readonly error: { code: RunErrorCode; message: string } | undefined;
  readonly timings: RunTimings;
  /** As the API has it. */
  readonly run: Run;
}

export function runResult(run: Run): RunResult {
  return {
    id: run.id,
    state: run.state,
    ok: run.state === 'succeeded',
    exitCode: run.exit_code,
    signal: run.signal,
    timedOut: run.state === 'timed_out',
    oomKilled: run.oom_killed ?? false,
    stdout: streamText(run, run.stdout),
    stderr: streamText(run, run.stderr),
    stdoutBytes: run.stdout_bytes ?? 0,
    stderrBytes: run.stderr_bytes ?? 0,
    truncated: run.truncated ?? false,
    outputs: run.outputs,
    skippedOutputs: run.skipped_outputs ?? [],
    error: run.error,
    timings: run.timings,
    run,
  };
}

function streamText(run: Run, stream: string | undefined): string {
  if (stream === undefined) return '';
  return run.encoding === 'base64' ? new TextDecoder().decode(bytesFromBase64(stream)) : stream;
}

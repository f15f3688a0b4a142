/**
 * A run's rules, pure. States and transitions are contract's table; this says what each end means.
 *
 * What a state promises while a run is in it, so that any process can go on where another died:
 *   queued    nothing was started, no room is reserved
 *   starting  room is reserved; the VM may or may not exist; the command was never started
 *   running   the command may have been started. It is never started in another VM: no VM any more means `vm_lost`
 *   saving    the command ended and its result is in the row; outputs and logs may or may not be in the object store
 * The row becomes `running` before the host is asked to start the command, which it does once for an id.
 */
import type { RunErrorCode, RunState } from '@fuse/contract';
import type { GuestExecExit } from '@fuse/host-protocol';

export interface RunFailure {
  code: RunErrorCode;
  message: string;
}

export type RunOutcome = Extract<RunState, 'succeeded' | 'failed' | 'timed_out' | 'cancelled'>;

/** `cancelled` only when the cancellation was what ended the command: one that ended by itself keeps its own end. */
export function outcomeOf(exit: GuestExecExit, killedByCancel: boolean): RunOutcome {
  if (killedByCancel) return 'cancelled';
  if (exit.timed_out) return 'timed_out';
  return exit.exit_code === 0 ? 'succeeded' : 'failed';
}

/** Derived, so that a second driver finds what the first one made. */
export const execIdOf = (runId: string): string => `${runId}-exec`;

/** Beyond the command's own deadline, which the guest keeps: after this the host is told to kill it. */
export const TIMEOUT_BACKSTOP_MS = 10_000;

/**
 * What `fuse run` exits with:
 *   the command's own code   it ran to its end (128+n when signal n ended it)
 *   124                      its time was over
 *   130                      the run was cancelled (129, 143: by SIGHUP, SIGTERM to this program)
 *   141                      nobody read our output any more; the run was cancelled
 *   1                        no truthful result: refused, no room, the VM was lost, outputs could not be saved
 */
import { TIMED_OUT_EXIT_CODE } from '@fuse/contract';
import type { ExecExit, RunResult } from '@fuse/sdk';

export const CANCELLED_EXIT_CODE = 130;

export function exitCodeOf(result: RunResult): number {
  if (result.error !== undefined) return 1;
  if (result.state === 'timed_out') return TIMED_OUT_EXIT_CODE;
  if (result.state === 'cancelled') return CANCELLED_EXIT_CODE;
  return result.exitCode ?? 1;
}

/** Of a command in an environment. */
export const exitCodeOfExec = (exit: Pick<ExecExit, 'exit_code'> & { timed_out?: boolean | undefined }): number =>
  exit.timed_out === true ? TIMED_OUT_EXIT_CODE : exit.exit_code;

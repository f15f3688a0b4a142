import { AppError } from '@fuse/contract';
import type { HostExecResult } from '@fuse/host-protocol';
import type { Exec } from './exec.ts';
import { readHeads } from './frame-file.ts';

/** The head of each stream of an exec that has ended, at most `limitBytes` each. */
export async function execResult(exec: Exec, limitBytes: number): Promise<HostExecResult> {
  if (exec.running) throw new AppError('conflict', 'the exec is still running');
  const view = exec.view();
  const { stdout, stderr } = await readHeads(exec.log, limitBytes);
  const whole =
    view.exit !== undefined && stdout.length === view.exit.stdout_bytes && stderr.length === view.exit.stderr_bytes;
  return {
    exec: view,
    stdout_base64: stdout.toString('base64'),
    stderr_base64: stderr.toString('base64'),
    truncated: !whole,
  };
}

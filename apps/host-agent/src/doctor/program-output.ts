import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const execute = promisify(execFile);
const MAX_OUTPUT_BYTES = 1_048_576;

/** stdout and stderr of a short command; undefined when it cannot be started or fails. */
export async function programOutput(
  argv: readonly [string, ...string[]],
  signal: AbortSignal,
): Promise<string | undefined> {
  const [program, ...args] = argv;
  try {
    const { stdout, stderr } = await execute(program, args, { signal, maxBuffer: MAX_OUTPUT_BYTES });
    return stdout + stderr;
  } catch (error) {
    if (signal.aborted) throw error;
    return undefined;
  }
}

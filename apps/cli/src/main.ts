import { CliError } from './cli-error.ts';
import { Interrupted } from './interrupt.ts';
import { errorText } from './output/error-text.ts';
import { BROKEN_PIPE_EXIT_CODE, BrokenPipe, processIo } from './output/io.ts';
import { createProgram } from './program.ts';

/** The whole process: `argv` as Node has it. Ends with the exit code. */
export async function main(argv: readonly string[]): Promise<void> {
  const io = processIo();
  try {
    const program = await createProgram({ io, env: process.env, argv: argv.slice(2) });
    await program.parseAsync([...argv]);
  } catch (error) {
    process.exitCode = exitCodeFor(error);
    if (!(error instanceof BrokenPipe) && !(error instanceof Interrupted)) await io.err(Buffer.from(errorText(error)));
  }
  // Idle connections and an unread stdin are no reason to stay; both streams have taken all that was written.
  process.exit();
}

function exitCodeFor(error: unknown): number {
  if (error instanceof BrokenPipe) return BROKEN_PIPE_EXIT_CODE;
  if (error instanceof Interrupted) return error.exitCode;
  return error instanceof CliError ? error.exitCode : 1;
}

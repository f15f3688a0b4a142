import { spawn } from 'node:child_process';
import { CliError } from '../cli-error.ts';
import type { ProcessEnv } from '../config/fuse-home.ts';

/** $VISUAL, else $EDITOR, split at spaces as git does with simple ones. */
export function editorArgv(env: ProcessEnv): string[] {
  const argv = (env.VISUAL || env.EDITOR || '').split(' ').filter((part) => part !== '');
  if (argv.length > 0) return argv;
  throw new CliError('no editor is set', { hint: 'set $EDITOR, or give --old and --new, or --patch' });
}

export async function runEditor([program = '', ...args]: string[], path: string): Promise<void> {
  const child = spawn(program, [...args, path], { stdio: 'inherit' });
  // Ctrl-C is the editor's, which has the terminal now.
  const pass = () => {};
  process.on('SIGINT', pass);
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', (cause) =>
      reject(
        new CliError(
          `cannot run ${program}: ${'code' in cause && cause.code === 'ENOENT' ? 'no such program' : cause.message}`,
          {
            cause,
          },
        ),
      ),
    );
    child.once('close', resolve);
  }).finally(() => process.off('SIGINT', pass));
  if (code !== 0) throw new CliError(`${program} ended with ${code ?? 'a signal'}: nothing is written`);
}

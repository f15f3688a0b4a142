/** Other parts of the project are started as processes of their own, with our terminal; their exit code becomes ours. */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { CliError } from './cli-error.ts';
import type { ProcessEnv } from './config/fuse-home.ts';

/** `script` from the project's root. */
export async function spawnPart(script: string, args: readonly string[], env: ProcessEnv): Promise<number> {
  const path = fileURLToPath(new URL(`../../../${script}`, import.meta.url));
  if (!existsSync(path))
    throw new CliError('this part of Fuse is not built yet', { hint: 'run `npm run build` in the project first' });
  // A signal of the terminal reaches both of us; how the child takes it decides. One sent to us alone is passed on.
  const child = spawn(process.execPath, [path, ...args], { stdio: 'inherit', env });
  process.on('SIGINT', () => {});
  for (const signal of ['SIGTERM', 'SIGHUP'] as const) process.on(signal, () => child.kill(signal));
  return await new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('exit', (code, signal) => resolve(code ?? (signal === 'SIGINT' ? 130 : 143)));
  });
}

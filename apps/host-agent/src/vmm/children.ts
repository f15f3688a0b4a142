/** Starting programs through this process's one spawner. */
import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { basename, join } from 'node:path';
import { AppError } from '@fuse/contract';
import type { Logger } from '@fuse/runtime';
import { z } from 'zod';
import { type ChildSpec, Spawner, type StartedChild } from './spawner.ts';

let current: Spawner | undefined;
let logger: Logger | undefined;
let program: string | undefined;

function spawner(): Spawner {
  if (current === undefined || current.isLost) {
    program ??= builtJailer();
    current = new Spawner(program, () => logger?.warn('the spawner has ended; the next child gets a new one'));
  }
  return current;
}

/** What set-up built, for programs that are not told: those that are no host agent. */
function builtJailer(): string {
  const manifestPath = join(process.env.FUSE_HOME || join(homedir(), '.fuse'), 'assets', 'manifest.json');
  try {
    const manifest = z.object({ programs: z.object({ jailer: z.object({ path: z.string() }) }) });
    return manifest.parse(JSON.parse(readFileSync(manifestPath, 'utf8'))).programs.jailer.path;
  } catch (cause) {
    throw new AppError('unavailable', `${manifestPath} names no fuse-jailer`, {
      cause,
      hint: 'run `npm run setup` in the project to build it',
    });
  }
}

/** Starts it now, so that the first VM does not wait for it. Disposing ends it; what is started afterwards starts another. */
export function openSpawner(log: Logger, jailer?: string): AsyncDisposable {
  logger = log;
  program = jailer ?? program;
  spawner();
  return { [Symbol.asyncDispose]: endSpawner };
}

/** For programs that are not a host agent; those that just end need nothing. */
export async function endSpawner(): Promise<void> {
  const ending = current;
  current = undefined;
  await ending?.[Symbol.asyncDispose]();
}

export async function startChild(spec: ChildSpec): Promise<StartedChild> {
  return spawner().start(spec);
}

export class ProgramFailed extends Error {
  override readonly name = 'ProgramFailed';
  readonly stderr: string;

  constructor(program: string, stderr: string, how: string) {
    super(`${basename(program)} ${how}`);
    this.stderr = stderr;
  }
}

/** Runs a short program to its successful end and resolves with what it wrote to stdout. Aborted, it is killed, and gone once this rejects with the signal's reason. */
export async function runProgram(
  program: string,
  args: readonly string[],
  { path, signal }: { path: string; signal?: AbortSignal | undefined },
): Promise<string> {
  const own = spawner();
  return own.hold(run());

  async function run(): Promise<string> {
    signal?.throwIfAborted();
    const child = await own.start({
      program,
      args,
      env: { PATH: path, LC_ALL: 'C' },
      session: false,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    signal?.addEventListener('abort', child.kill, { once: true });
    try {
      if (signal?.aborted) child.kill();
      const { code, signal: endedBy, stdout, stderr } = await child.ended;
      signal?.throwIfAborted();
      if (code !== 0)
        throw new ProgramFailed(program, stderr, code === null ? `was ended by ${endedBy}` : `ended with ${code}`);
      return stdout;
    } finally {
      signal?.removeEventListener('abort', child.kill);
    }
  }
}

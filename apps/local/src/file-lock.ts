/**
 * Locks that end with their holder, however it ends: the kernel's flock on an open file. Node cannot take one, so flock(1) takes it on our
 * descriptor, which is ours to keep: a flock belongs to the open file, not to the process that asked for it.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type FileHandle, open } from 'node:fs/promises';
import { Failure } from './failure.ts';

const TAKEN_EXIT_CODE = 75;

/** Undefined when another holds it and does not let go within `waitMs`. Disposing gives it back. */
export async function lockFile(path: string, waitMs = 0): Promise<AsyncDisposable | undefined> {
  const file = await open(path, 'a', 0o600);
  try {
    if (await flock(file, waitMs)) return { [Symbol.asyncDispose]: () => file.close() };
  } catch (error) {
    await file.close();
    throw error;
  }
  await file.close();
  return undefined;
}

async function flock(file: FileHandle, waitMs: number): Promise<boolean> {
  const wait = waitMs === 0 ? ['-n'] : ['-w', String(waitMs / 1_000)];
  const child = spawn('flock', [...wait, '-E', String(TAKEN_EXIT_CODE), '3'], {
    stdio: ['ignore', 'ignore', 'inherit', file.fd],
  });
  const [code] = await once(child, 'exit').catch((cause: unknown) => {
    throw new Failure('flock cannot be started', 'install the package util-linux', cause);
  });
  if (code === 0) return true;
  if (code === TAKEN_EXIT_CODE) return false;
  throw new Failure(`flock failed with exit code ${code}`);
}

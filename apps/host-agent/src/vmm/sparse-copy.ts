/** Copies of sparse files that stay sparse, and flushing what a success was promised for. */
import { open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { AppError } from '@fuse/contract';
import { runProgram } from './children.ts';

/** `to` must not exist. A reflink where the file system has it, otherwise a copy of the data extents alone. */
export async function copySparse(from: string, to: string, signal?: AbortSignal): Promise<void> {
  await (await open(to, 'wx', 0o600)).close();
  try {
    await runProgram('cp', ['--reflink=auto', '--sparse=auto', '--', from, to], { path: '/usr/bin:/bin', signal });
  } catch (cause) {
    signal?.throwIfAborted();
    throw new AppError('unavailable', `cannot copy ${from} to ${to}: ${stderrOf(cause)}`, { cause });
  }
}

export async function flushFile(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Makes the names in the file's directory as durable as the file. */
export async function flushDirectoryOf(path: string): Promise<void> {
  await flushFile(dirname(path));
}

export function stderrOf(error: unknown): string {
  const stderr = (error as { stderr?: unknown }).stderr;
  const text = typeof stderr === 'string' && stderr.trim() !== '' ? stderr.trim() : String(error);
  return text.slice(0, 1024);
}

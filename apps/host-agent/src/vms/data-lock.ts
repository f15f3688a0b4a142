/** Two host agents never share one data directory: a lock file names the process that has it. A dead holder's is taken over. */
import { readFileSync } from 'node:fs';
import { link, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@fuse/contract';

export async function lockDataDirectory(directory: string): Promise<AsyncDisposable> {
  const path = join(directory, 'lock');
  const mine = `${path}.${process.pid}`;
  const holder = describeProcess(process.pid);
  if (holder === undefined) throw new AppError('internal', 'this process has no entry in /proc');
  await writeFile(mine, holder, { mode: 0o600 });
  try {
    while (!(await claim(mine, path))) await removeStale(path, directory);
  } finally {
    await rm(mine, { force: true });
  }
  return {
    async [Symbol.asyncDispose]() {
      await rm(path, { force: true });
    },
  };
}

async function claim(mine: string, path: string): Promise<boolean> {
  try {
    await link(mine, path);
    return true;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return false;
    throw error;
  }
}

async function removeStale(path: string, directory: string): Promise<void> {
  const holder = await readFile(path, 'utf8').catch(() => undefined);
  if (holder === undefined) return;
  const pid = Number.parseInt(holder, 10);
  if (describeProcess(pid) === holder)
    throw new AppError('conflict', `the host agent with process id ${pid} uses ${directory} already`, {
      hint: 'stop it first, or choose another FUSE_HOME',
    });
  // Another starter may have replaced the stale lock since it was read: then its lock is put back.
  const aside = `${path}.stale-${process.pid}`;
  await rename(path, aside).catch(() => {});
  const moved = await readFile(aside, 'utf8').catch(() => holder);
  if (moved !== holder) await link(aside, path).catch(() => {});
  await rm(aside, { force: true });
}

/** Pid, boot and start time of a process: never the same for two. Undefined when it is gone. */
export function describeProcess(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const [state, ...fields] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (state === 'Z' || state === 'X') return undefined;
    const startTicks = fields[18];
    return `${pid} ${readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()} ${startTicks}\n`;
  } catch {
    return undefined;
  }
}

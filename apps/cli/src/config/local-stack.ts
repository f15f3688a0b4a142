/** The stack that `fuse local up` started on this machine, as long as its process lives. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { fuseHome, type ProcessEnv } from './fuse-home.ts';

const LocalFile = z.object({ pid: z.number().int(), start_time: z.string(), url: z.string() });

export async function runningLocalStack(env: ProcessEnv): Promise<{ url: string; token: string } | undefined> {
  const home = fuseHome(env);
  try {
    const local = LocalFile.parse(JSON.parse(await readFile(join(home, 'local.json'), 'utf8')));
    // Another process may have got the pid, and another program the port.
    if ((await startTimeOf(local.pid)) !== local.start_time) return undefined;
    return { url: local.url, token: (await readFile(join(home, 'token'), 'utf8')).trim() };
  } catch {
    return undefined;
  }
}

/** As the stack writes it: boot id, and field 22 of /proc/<pid>/stat, counted behind the name, which may hold anything. */
async function startTimeOf(pid: number): Promise<string | undefined> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  if (fields[0] === 'Z' || fields[0] === 'X') return undefined; // killed, and not reaped yet
  const boot = await readFile('/proc/sys/kernel/random/boot_id', 'utf8');
  return `${boot.trim()} ${fields[19]}`;
}

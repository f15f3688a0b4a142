/** Which process is which, from /proc. A pid alone names a process only until it is given to the next one. */
import { readdir, readFile, readlink } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';

/** Boot and start time in clock ticks since then: with the pid, never the same for two. Undefined when it is gone. */
export async function startTimeOf(pid: number): Promise<string | undefined> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
    // Behind the name in parentheses, which may hold anything.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (fields[0] === 'Z' || fields[0] === 'X') return undefined;
    const boot = await readFile('/proc/sys/kernel/random/boot_id', 'utf8');
    return `${boot.trim()} ${fields[19]}`;
  } catch {
    return undefined;
  }
}

export async function isGoneWithin(pid: number, startTime: string, ms: number): Promise<boolean> {
  for (const deadline = performance.now() + ms; performance.now() < deadline; await delay(50))
    if ((await startTimeOf(pid)) !== startTime) return true;
  return (await startTimeOf(pid)) !== startTime;
}

/** VMMs and whatever else works in a directory: by working directory or command line. Never this process. */
export async function processesIn(directory: string): Promise<{ pid: number; command: string }[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  const found = await Promise.all(
    pids.map(async (pid) => {
      if (pid === process.pid) return [];
      const cwd = await readlink(`/proc/${pid}/cwd`).catch(() => '');
      const command = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).replaceAll('\0', ' ').trim();
      return `${cwd}/`.startsWith(`${directory}/`) || command.includes(`${directory}/`) ? [{ pid, command }] : [];
    }),
  );
  return found.flat();
}

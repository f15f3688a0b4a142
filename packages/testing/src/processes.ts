/** What /proc says of the processes on this machine. */
import { readdir, readFile } from 'node:fs/promises';

export interface RunningProcess {
  pid: number;
  parentPid: number;
  /** Clock ticks after boot: with the pid, it names one process for good. */
  startTicks: string;
  command: string;
}

/** Zombies are left out: they hold nothing and belong to whoever has yet to reap them. */
export async function runningProcesses(): Promise<RunningProcess[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const all = await Promise.all(pids.map(readProcess));
  return all.filter((each) => each !== undefined);
}

async function readProcess(pid: string): Promise<RunningProcess | undefined> {
  try {
    const [stat, cmdline] = await Promise.all([
      readFile(`/proc/${pid}/stat`, 'utf8'),
      readFile(`/proc/${pid}/cmdline`, 'utf8'),
    ]);
    // The name in parentheses may hold anything, a ")" too: the fields begin after the last one.
    const nameEnd = stat.lastIndexOf(')');
    const fields = stat.slice(nameEnd + 2).split(' ');
    const [state, parentPid, startTicks] = [fields[0], fields[1], fields[19]];
    if (state === 'Z' || state === 'X' || parentPid === undefined || startTicks === undefined) return undefined;
    const command = cmdline.split('\0').join(' ').trim() || stat.slice(stat.indexOf('(') + 1, nameEnd);
    return { pid: Number(pid), parentPid: Number(parentPid), startTicks, command };
  } catch {
    return undefined; // it ended between readdir and here
  }
}

export function descendantsOf(pid: number, all: readonly RunningProcess[]): RunningProcess[] {
  const found = new Set([pid]);
  for (let before = 0; before < found.size; ) {
    before = found.size;
    for (const each of all) if (found.has(each.parentPid)) found.add(each.pid);
  }
  return all.filter((each) => each.pid !== pid && found.has(each.pid));
}

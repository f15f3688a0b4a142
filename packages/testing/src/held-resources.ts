/**
 * How much a process holds, in numbers: for what is done thousands of times and must leave it as it was. `leaks.ts` names each thing that is left; this
 * sees also what has no name, such as memory, and works on other processes.
 */
import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { descendantsOf, runningProcesses } from './processes.ts';

export interface HeldResources {
  descriptors: number;
  threads: number;
  /** It, and all that it started. */
  processes: number;
  mounts: number;
  rssBytes: number;
}

export async function heldResources(pid: number = process.pid): Promise<HeldResources> {
  const [descriptors, threads, mounts, status, all] = await Promise.all([
    readdir(`/proc/${pid}/fd`),
    readdir(`/proc/${pid}/task`),
    readFile(`/proc/${pid}/mountinfo`, 'utf8'),
    readFile(`/proc/${pid}/status`, 'utf8'),
    runningProcesses(),
  ]);
  return {
    descriptors: descriptors.length,
    threads: threads.length,
    processes: 1 + descendantsOf(pid, all).length,
    mounts: mounts.split('\n').length - 1,
    rssBytes: Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1] ?? 0) * 1_024,
  };
}

let collect: (() => void) | undefined;

/** Of this process, without garbage: the least of some collections, for what finalizers hold goes with the next. */
export async function liveHeapBytes(): Promise<number> {
  if (collect === undefined) {
    setFlagsFromString('--expose_gc');
    collect = runInNewContext('gc') as () => void; // --expose_gc makes it a global of new contexts
  }
  let least = Number.POSITIVE_INFINITY;
  for (let round = 0; round < 4; round += 1) {
    collect();
    await delay(50);
    const { heapUsed, external } = process.memoryUsage();
    least = Math.min(least, heapUsed + external);
  }
  return least;
}

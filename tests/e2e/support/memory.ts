import { readFileSync } from 'node:fs';

const SAMPLE_MS = 100;

const residentMiB = (pid: number): number =>
  Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) / 1_024;

/** Watches a process; `stop` tells how much more memory it had at most than when this began. */
export function mostMemoryMiB(pid: number): { stop(): number } {
  const before = residentMiB(pid);
  let most = before;
  const sampling = setInterval(() => {
    most = Math.max(most, residentMiB(pid));
  }, SAMPLE_MS);
  return {
    stop() {
      clearInterval(sampling);
      return most - before;
    },
  };
}

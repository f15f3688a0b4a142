import { readFile } from 'node:fs/promises';
import { type Check, type Finding, fail, ok, warn } from '../finding.ts';

/** A VM of the default shape may come to use 512 MiB, and the stack itself uses a quarter GiB. */
const ENOUGH_MIB = 2_048;
const LEAST_MIB = 768;

export const memoryCheck: Check = {
  name: 'memory',
  run: async () => judgeMemory(await readFile('/proc/meminfo', 'utf8')),
};

export function judgeMemory(meminfo: string): Finding {
  const availableMiB = Number(/^MemAvailable:\s+(\d+) kB/m.exec(meminfo)?.[1] ?? 0) / 1024;
  const available = `${Math.floor(availableMiB)} MiB available`;
  const fix = 'end other programs, or use a machine with more memory';
  if (availableMiB < LEAST_MIB) return fail(`${available}: too little for a VM of the default shape`, fix);
  if (availableMiB < ENOUGH_MIB) return warn(`${available}: enough for one or two VMs`, fix);
  return ok(available);
}

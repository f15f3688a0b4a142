/**
 * Temporary files of puts in progress carry the identity of their process, so that a start sweeps what a killed process left and never what a
 * live one (several may share a store) still writes. Processes of other containers cannot be seen: their files go after a day.
 */
import { randomBytes } from 'node:crypto';
import { readdir, readFile, readlink, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing } from './disk-errors.ts';

const UNSEEN_MAX_AGE_MS = 24 * 3_600_000;

interface Owner {
  pidNamespace: string;
  pid: number;
  /** Clock ticks after boot: tells a process from a later one with its number. */
  startTicks: string;
}

let self: Promise<Owner> | undefined;

async function whoWeAre(): Promise<Owner> {
  const namespace = await readlink('/proc/self/ns/pid'); // "pid:[4026531836]"
  const startTicks = await startTicksOf(process.pid);
  if (startTicks === undefined) throw new Error('/proc does not show this process');
  return { pidNamespace: namespace.replace(/\D/g, ''), pid: process.pid, startTicks };
}

export async function temporaryName(): Promise<string> {
  self ??= whoWeAre();
  const { pidNamespace, pid, startTicks } = await self;
  return `${pidNamespace}.${pid}.${startTicks}.${randomBytes(8).toString('hex')}`;
}

export async function sweepLeftovers(directory: string): Promise<void> {
  self ??= whoWeAre();
  const { pidNamespace } = await self;
  for (const name of await readdir(directory)) {
    const path = join(directory, name);
    const [namespace, pid, startTicks] = name.split('.');
    const dead = namespace === pidNamespace ? (await startTicksOf(Number(pid))) !== startTicks : await isOld(path);
    if (dead) await rm(path, { recursive: true, force: true });
  }
}

/** Of a process that lives: one that is dead and only not reaped yet writes nothing any more. */
async function startTicksOf(pid: number): Promise<string | undefined> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return ['Z', 'X'].includes(fields[0] ?? '') ? undefined : fields[19];
  } catch {
    return undefined; // no such process
  }
}

async function isOld(path: string): Promise<boolean> {
  try {
    return Date.now() - (await stat(path)).mtimeMs > UNSEEN_MAX_AGE_MS;
  } catch (error) {
    if (isMissing(error)) return false; // its put has ended meanwhile
    throw error;
  }
}

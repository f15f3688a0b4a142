/**
 * The control group of one VMM: a directory `fuse/<name>` in each hierarchy; the gateway has one elsewhere. Its files are the kernel's, and reading or writing one waits for no disk, so they are used
 * synchronously: a start pays for system calls alone.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { availableParallelism, totalmem } from 'node:os';
import { dirname, join } from 'node:path';
import { AppError } from '@fuse/contract';
import { sleep } from '@fuse/runtime';
import type { Controller, Hierarchy } from './hierarchies.ts';
import type { Limits } from './limits.ts';

export const CGROUP_PARENT = 'fuse';
const PERIOD_US = 100_000;
const REMOVAL_POLL_MS = 5;
const REMOVAL_DEADLINE_MS = 10_000;
/** A plain process has 1024 (version 1) or 100 (version 2). */
const SHARES_PER_CPU = 1_024;
const WEIGHT_PER_CPU = 100;
const MAX_SHARES = 262_144;
const MAX_WEIGHT = 10_000;
const MEMORY_SHARE_OF_ALL = 0.9;

export interface CgroupUsage {
  memoryBytes: number;
  /** Since it was made; undefined where the host does not count it for groups. */
  cpuSeconds: number | undefined;
  /** Processes that were killed since the group had reached its limit. */
  outOfMemoryKills: number;
}

export class Cgroup {
  readonly #hierarchies: readonly Hierarchy[];
  readonly #name: string;
  readonly #parent: string;

  constructor(hierarchies: readonly Hierarchy[], name: string, parent = CGROUP_PARENT) {
    this.#hierarchies = hierarchies;
    this.#name = name;
    this.#parent = parent;
  }

  /** What a process writes itself into, to be in it. */
  get procsPaths(): string[] {
    return this.#hierarchies.map((each) => join(this.#pathIn(each), 'cgroup.procs'));
  }

  get exists(): boolean {
    return this.#hierarchies.some((each) => existsSync(this.#pathIn(each)));
  }

  get pids(): number[] {
    const lines = this.procsPaths.flatMap((path) => (readIfThere(path) ?? '').split('\n'));
    return [...new Set(lines.filter((line) => line !== '').map(Number))];
  }

  /** Throws where one of this name exists. */
  create(limits: Limits): void {
    for (const hierarchy of this.#hierarchies) {
      const path = this.#pathIn(hierarchy);
      makeIn(path);
      for (const controller of hierarchy.controllers)
        for (const [file, value] of settings(hierarchy.version, controller, limits, path))
          writeFileSync(join(path, file), value);
    }
  }

  /** In hierarchies of memory alone. */
  createForMemory(memoryBytes: number): void {
    for (const hierarchy of this.#hierarchies) {
      const path = this.#pathIn(hierarchy);
      makeIn(path);
      for (const [file, value] of memorySettings(hierarchy.version, memoryBytes, path))
        writeFileSync(join(path, file), value);
    }
  }

  usage(): CgroupUsage {
    const memory = this.#fileOf('memory', 'memory.usage_in_bytes', 'memory.current');
    const kills = /^oom_kill (\d+)$/m.exec(this.#fileOf('memory', 'memory.oom_control', 'memory.events'));
    const usec = /^usage_usec (\d+)$/m.exec(this.#fileOf('cpu', '', 'cpu.stat'))?.[1];
    const nsec = this.#fileOf('cpuacct', 'cpuacct.usage', '').trim();
    const seconds = usec === undefined ? Number(nsec === '' ? Number.NaN : nsec) / 1e9 : Number(usec) / 1e6;
    return {
      memoryBytes: Number(memory),
      cpuSeconds: Number.isNaN(seconds) ? undefined : seconds,
      outOfMemoryKills: Number(kills?.[1] ?? 0),
    };
  }

  /** With all that is still in it. */
  async remove(): Promise<void> {
    for (const hierarchy of this.#hierarchies) {
      const path = this.#pathIn(hierarchy);
      for (let waitedMs = 0; !removed(path); waitedMs += REMOVAL_POLL_MS) {
        if (waitedMs >= REMOVAL_DEADLINE_MS)
          throw new AppError('internal', `control group ${path} does not become empty`);
        for (const pid of this.pids) killIfThere(pid);
        await sleep(REMOVAL_POLL_MS);
      }
    }
  }

  #pathIn({ mountPath }: Hierarchy): string {
    return join(mountPath, this.#parent, this.#name);
  }

  #fileOf(controller: Controller, inVersion1: string, inVersion2: string): string {
    const hierarchy = this.#hierarchies.find(({ controllers }) => controllers.includes(controller));
    if (hierarchy === undefined) return '';
    const file = hierarchy.version === 1 ? inVersion1 : inVersion2;
    return file === '' ? '' : (readIfThere(join(this.#pathIn(hierarchy), file)) ?? '');
  }
}

/** What holds for all VMs of the machine together, whoever starts them: the host itself goes on whatever they do. */
export function prepareParents(hierarchies: readonly Hierarchy[]): void {
  for (const { version, mountPath, controllers } of hierarchies) {
    const parent = join(mountPath, CGROUP_PARENT);
    mkdirSync(parent, { recursive: true });
    if (version === 2)
      for (const directory of [mountPath, parent])
        writeFileSync(join(directory, 'cgroup.subtree_control'), controllers.map((each) => `+${each}`).join(' '));
    for (const controller of controllers)
      for (const [file, value] of parentSettings(version, controller)) writeFileSync(join(parent, file), value);
  }
}

/** On each processor they weigh as much as two plain processes of the host's. */
function parentSettings(version: 1 | 2, controller: Controller): [string, string][] {
  const weighsAs = 2 * availableParallelism();
  if (controller === 'cpu')
    return version === 2
      ? [['cpu.weight', String(Math.min(MAX_WEIGHT, weighsAs * WEIGHT_PER_CPU))]]
      : [['cpu.shares', String(Math.min(MAX_SHARES, weighsAs * SHARES_PER_CPU))]];
  if (controller === 'memory')
    return [
      [version === 2 ? 'memory.max' : 'memory.limit_in_bytes', String(Math.floor(totalmem() * MEMORY_SHARE_OF_ALL))],
    ];
  return [];
}

/** Of those that `isTaken` does not know. */
export function removeEmptyGroups(hierarchies: readonly Hierarchy[], isTaken: (name: string) => boolean): void {
  for (const { mountPath } of hierarchies) {
    const parent = join(mountPath, CGROUP_PARENT);
    for (const entry of readdirSync(parent, { withFileTypes: true }))
      if (entry.isDirectory() && !isTaken(entry.name)) removed(join(parent, entry.name));
  }
}

function makeIn(path: string): void {
  try {
    mkdirSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    mkdirSync(dirname(path), { recursive: true });
    mkdirSync(path);
  }
}

function settings(version: 1 | 2, controller: Controller, limits: Limits, path: string): [string, string][] {
  const quota = String(Math.round(limits.cpus * PERIOD_US));
  switch (controller) {
    case 'memory':
      return memorySettings(version, limits.memoryBytes, path);
    case 'cpu': {
      const weight = Math.min(MAX_WEIGHT, limits.cpuWeight * WEIGHT_PER_CPU);
      if (version === 2)
        return [
          ['cpu.max', `${quota} ${PERIOD_US}`],
          ['cpu.weight', String(weight)],
        ];
      return [
        ['cpu.cfs_period_us', String(PERIOD_US)],
        ['cpu.cfs_quota_us', quota],
        ['cpu.shares', String(Math.min(MAX_SHARES, limits.cpuWeight * SHARES_PER_CPU))],
      ];
    }
    case 'pids':
      return [['pids.max', String(limits.threads)]];
    case 'cpuacct':
      return [];
  }
}

/** What is swapped out counts too, where the kernel counts it: otherwise a VM could take the host's swap. */
function memorySettings(version: 1 | 2, memoryBytes: number, path: string): [string, string][] {
  const memory = String(memoryBytes);
  if (version === 2)
    return [['memory.max', memory], ['memory.oom.group', '1'], ...ifThere(path, 'memory.swap.max', '0')];
  return [['memory.limit_in_bytes', memory], ...ifThere(path, 'memory.memsw.limit_in_bytes', memory)];
}

const ifThere = (path: string, file: string, value: string): [string, string][] =>
  existsSync(join(path, file)) ? [[file, value]] : [];

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENODEV') return undefined;
    throw error;
  }
}

/** False while a process is in it. */
function removed(path: string): boolean {
  try {
    rmdirSync(path);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return true;
    if (code === 'EBUSY') return false;
    throw error;
  }
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

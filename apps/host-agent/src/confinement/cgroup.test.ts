import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryDirectory } from '@fuse/testing';
import { describe, expect, it } from 'vitest';
import { Cgroup, prepareParents } from './cgroup.ts';
import { hostHierarchies, missingControllers } from './hierarchies.ts';
import type { Limits } from './limits.ts';

const MIB = 1_048_576;
const limits: Limits = {
  memoryBytes: 64 * MIB,
  cpus: 1.5,
  cpuWeight: 1,
  threads: 16,
  openFiles: 64,
  fileSizeBytes: MIB,
};

describe('in version 2', () => {
  it('sets each limit in the file that the kernel has for it', async () => {
    await using directory = await temporaryDirectory(); // plain files: what is written is what counts
    const mountPath = directory.path;
    const group = join(mountPath, 'fuse', 'vmm-1');
    prepareParents([{ version: 2, mountPath, controllers: ['memory', 'cpu', 'pids'] }]);
    const cgroup = new Cgroup([{ version: 2, mountPath, controllers: ['memory', 'cpu', 'pids'] }], 'vmm-1');
    cgroup.create(limits);
    const read = (name: string) => readFileSync(join(group, name), 'utf8');
    expect(readFileSync(join(mountPath, 'fuse', 'cgroup.subtree_control'), 'utf8')).toBe('+memory +cpu +pids');
    expect(read('memory.max')).toBe(String(64 * MIB));
    expect(read('memory.oom.group')).toBe('1');
    expect(read('cpu.max')).toBe('150000 100000');
    expect(read('cpu.weight')).toBe('100');
    expect(read('pids.max')).toBe('16');
    writeFileSync(join(group, 'memory.current'), '4096\n');
    writeFileSync(join(group, 'memory.events'), 'low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\n');
    writeFileSync(join(group, 'cpu.stat'), 'usage_usec 2500000\nuser_usec 1\n');
    expect(cgroup.usage()).toEqual({ memoryBytes: 4096, cpuSeconds: 2.5, outOfMemoryKills: 2 });
    expect(cgroup.procsPaths).toEqual([join(group, 'cgroup.procs')]);
  });
});

const hierarchies = process.geteuid?.() === 0 ? hostHierarchies() : [];
const usable = hierarchies.length > 0 && missingControllers(hierarchies).length === 0;

describe.skipIf(!usable)('on this host', () => {
  async function inside(script: string, work: (cgroup: Cgroup) => Promise<void>): Promise<void> {
    prepareParents(hierarchies);
    const cgroup = new Cgroup(hierarchies, `test-${process.pid}`);
    cgroup.create(limits);
    try {
      const enter = cgroup.procsPaths.map((path) => `echo $$ > ${path}`).join('; ');
      const child = spawn('sh', ['-c', `${enter}; echo in; ${script}`], { stdio: ['ignore', 'pipe', 'ignore'] });
      const ended = once(child, 'close');
      await once(child.stdout, 'data');
      await work(cgroup);
      await cgroup.remove();
      await ended;
    } finally {
      await cgroup.remove();
    }
    expect(cgroup.exists).toBe(false);
  }

  it('counts what is in it, and ends it with the group', async () => {
    await inside('while :; do :; done', async (cgroup) => {
      expect(cgroup.pids).toHaveLength(1);
      await expect.poll(() => cgroup.usage().cpuSeconds).toBeGreaterThan(0.05);
      expect(cgroup.usage().memoryBytes).toBeGreaterThan(0);
      expect(cgroup.usage().outOfMemoryKills).toBe(0);
    });
  });

  it('has who takes more memory than it may killed, and says so', async () => {
    await inside('head -c 200000000 /dev/zero | tail -c 200000000 | wc -c', async (cgroup) => {
      await expect.poll(() => cgroup.usage().outOfMemoryKills).toBeGreaterThan(0);
    });
  });

  it('refuses to be made twice', async () => {
    await inside('sleep 60', async () => {
      expect(() => new Cgroup(hierarchies, `test-${process.pid}`).create(limits)).toThrow('EEXIST');
    });
  });
});

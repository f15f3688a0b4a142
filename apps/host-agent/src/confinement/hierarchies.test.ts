import { describe, expect, it } from 'vitest';
import { findHierarchies, missingControllers } from './hierarchies.ts';

const nothing = () => '';

describe('the control groups of a host', () => {
  it('are one hierarchy in version 2', () => {
    const mounts = 'proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n';
    const found = findHierarchies(mounts, () => 'cpuset cpu io memory hugetlb pids rdma misc\n');
    expect(found).toEqual([{ version: 2, mountPath: '/sys/fs/cgroup', controllers: ['memory', 'cpu', 'pids'] }]);
    expect(missingControllers(found)).toEqual([]);
  });

  it('are one for each controller in version 1, or for two of them', () => {
    const mounts = ['cpu,cpuacct', 'memory', 'pids', 'freezer']
      .map((names) => `cgroup /sys/fs/cgroup/${names} cgroup rw,${names} 0 0`)
      .join('\n');
    expect(findHierarchies(mounts, nothing)).toEqual([
      { version: 1, mountPath: '/sys/fs/cgroup/cpu,cpuacct', controllers: ['cpu', 'cpuacct'] },
      { version: 1, mountPath: '/sys/fs/cgroup/memory', controllers: ['memory'] },
      { version: 1, mountPath: '/sys/fs/cgroup/pids', controllers: ['pids'] },
    ]);
  });

  it('are of both versions where version 2 has no controllers left, or some', () => {
    const mounts =
      'cgroup /c/cpu cgroup rw,cpu 0 0\ncgroup /c/memory cgroup rw,memory 0 0\nnone /c/two cgroup2 rw 0 0\n';
    expect(findHierarchies(mounts, nothing).map(({ mountPath }) => mountPath)).toEqual(['/c/cpu', '/c/memory']);
    const mixed = findHierarchies(mounts, () => 'memory pids');
    expect(mixed).toContainEqual({ version: 2, mountPath: '/c/two', controllers: ['memory', 'pids'] });
    expect(mixed).toContainEqual({ version: 1, mountPath: '/c/cpu', controllers: ['cpu'] });
    expect(missingControllers(mixed)).toEqual([]);
  });

  it('are named where they are missing', () => {
    expect(missingControllers(findHierarchies('cgroup /c/cpu cgroup rw,cpu 0 0', nothing))).toEqual(['memory', 'pids']);
  });
});

/**
 * Where this host's control groups are: version 2 where its root offers a controller, version 1 for what is left (hosts that have both mix them).
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export const neededControllers = ['memory', 'cpu', 'pids'] as const;
/** Version 1 counts processor time in a hierarchy of its own; a VM is confined without it. */
const usefulControllers = ['cpuacct'] as const;
export type Controller = (typeof neededControllers)[number] | (typeof usefulControllers)[number];

export interface Hierarchy {
  version: 1 | 2;
  mountPath: string;
  controllers: readonly Controller[];
}

export function hostHierarchies(): Hierarchy[] {
  return findHierarchies(readFileSync('/proc/self/mounts', 'utf8'), (mountPath) => {
    const path = join(mountPath, 'cgroup.controllers');
    return existsSync(path) ? readFileSync(path, 'utf8') : '';
  });
}

/** `offered`: what the root of a version 2 hierarchy says that it has. */
export function findHierarchies(mounts: string, offered: (mountPath: string) => string): Hierarchy[] {
  const found: Hierarchy[] = [];
  const has = (controller: Controller) => found.some(({ controllers }) => controllers.includes(controller));
  const wanted = (names: readonly string[]) =>
    [...neededControllers, ...usefulControllers].filter((each) => names.includes(each) && !has(each));
  const lines = mounts.split('\n').map((line) => line.split(' '));
  for (const [, mountPath = '', type] of lines) {
    if (type !== 'cgroup2') continue;
    const controllers = wanted(offered(mountPath).trim().split(/\s+/));
    if (controllers.length > 0) found.push({ version: 2, mountPath, controllers });
  }
  for (const [, mountPath = '', type, options = ''] of lines) {
    if (type !== 'cgroup') continue;
    const controllers = wanted(options.split(','));
    if (controllers.length > 0) found.push({ version: 1, mountPath, controllers });
  }
  return found;
}

/** Of the groups that this process is in. */
export function ownProcsPaths(hierarchies: readonly Hierarchy[]): string[] {
  const lines = readFileSync('/proc/self/cgroup', 'utf8').trim().split('\n');
  const own = lines.map((line) => line.split(':')); // number, controllers ('' is version 2), path
  return hierarchies.flatMap(({ version, mountPath, controllers }) => {
    const isOf = (names: string) =>
      version === 2 ? names === '' : controllers.every((each) => names.split(',').includes(each));
    const path = own
      .find(([, names = '']) => isOf(names))
      ?.slice(2)
      .join(':');
    return path === undefined ? [] : [join(mountPath, path, 'cgroup.procs')];
  });
}

export function missingControllers(hierarchies: readonly Hierarchy[]): string[] {
  return neededControllers.filter((needed) => !hierarchies.some(({ controllers }) => controllers.includes(needed)));
}

/** Whether VMMs are confined on this host, and with which control groups. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { findHierarchies, type Hierarchy, missingControllers } from '../../confinement/hierarchies.ts';
import { type Check, type Finding, fail, ok, warn } from '../finding.ts';
import { hostFile } from '../host-file.ts';
import { runningStack } from '../running-stack.ts';

export const controlGroupsCheck: Check = {
  name: 'control groups',
  run: async ({ root }) => judgeControlGroups(await hierarchiesBelow(root)),
};

export const confinementCheck: Check = {
  name: 'confinement',
  run: async ({ root, env, home, signal }) =>
    judgeConfinement({
      runningConfined: (await runningStack(home, signal))?.confined,
      mode: env.FUSE_CONFINEMENT || 'auto',
      isRoot: process.geteuid?.() === 0,
      missing: missingControllers(await hierarchiesBelow(root)),
    }),
};

export function judgeControlGroups(hierarchies: readonly Hierarchy[]): Finding {
  const missing = missingControllers(hierarchies);
  if (missing.length > 0)
    return warn(
      `there are none for ${missing.join(', ')}: VMs are not held to what they may use`,
      'mount version 2 at /sys/fs/cgroup (systemd does), with the controllers memory, cpu and pids',
    );
  if (hierarchies.every(({ version }) => version === 2)) return ok('version 2');
  return warn(
    'version 1: starting from snapshots is slower, and swapped memory may not be counted',
    'boot with systemd.unified_cgroup_hierarchy=1',
  );
}

export function judgeConfinement(facts: {
  mode: string;
  isRoot: boolean;
  missing: readonly string[];
  /** Of the local stack that is up, whatever the environment is now. */
  runningConfined?: boolean | undefined;
}): Finding {
  if (facts.runningConfined === false)
    return warn(
      'the local stack that is up does not confine its VMMs: a guest that breaks out of one has what the host agent has',
      'start it again as root, on a host with control groups and without FUSE_CONFINEMENT=off',
    );
  if (facts.mode === 'off')
    return warn('FUSE_CONFINEMENT is off: a guest that breaks out of its VMM has what the host agent has', 'unset it');
  if (facts.isRoot && facts.missing.length === 0) return ok('each VMM gets a user, a root and limits of its own');
  const why = facts.isRoot ? `no control groups for ${facts.missing.join(', ')}` : 'not run as root';
  const say = facts.mode === 'required' ? fail : warn;
  return say(
    `VMMs would not be confined: ${why}`,
    'run the host agent (and this) as root, on a host with control groups',
  );
}

async function hierarchiesBelow(root: string): Promise<Hierarchy[]> {
  return findHierarchies((await hostFile(root, 'proc/self/mounts')) ?? '', (mountPath) => {
    const path = join(root, mountPath, 'cgroup.controllers');
    return existsSync(path) ? readFileSync(path, 'utf8') : '';
  });
}

/** For tests: what the kernel says of a running VMM, and a program of the test's in the same jail. */
import { readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { startChild } from '../vmm/children.ts';
import { jailed, qemuJail } from '../vmm/qemu/qemu-jail.ts';
import { Cgroup } from './cgroup.ts';
import { hostHierarchies } from './hierarchies.ts';
import { limitsOf } from './limits.ts';
import { plainDevices, prepareVmmRoot } from './vmm-root.ts';

export class ConfinedVmm {
  readonly pid: number;

  constructor(pid: number) {
    this.pid = pid;
  }

  /** A line of /proc/<pid>/status. */
  status(field: string): string {
    return new RegExp(`^${field}:[ \\t]*(.*?)[ \\t]*$`, 'm').exec(this.read('status'))?.[1] ?? '';
  }

  get uid(): number {
    return Number(this.status('Uid').split('\t')[0]);
  }

  get cgroup(): Cgroup {
    return new Cgroup(hostHierarchies(), `vmm-${this.uid}`);
  }

  namespace(kind: string): string {
    return readlinkSync(`/proc/${this.pid}/ns/${kind}`);
  }

  read(file: string): string {
    return readFileSync(`/proc/${this.pid}/${file}`, 'utf8');
  }

  /** Where something is mounted in its jail, and whether it may write there. */
  get mounts(): Record<string, 'ro' | 'rw'> {
    const lines = this.read('mountinfo').split('\n');
    const fields = lines.filter((line) => line !== '').map((line) => line.split(' '));
    return Object.fromEntries(fields.map((each) => [each[4], each[5]?.split(',').includes('ro') ? 'ro' : 'rw']));
  }

  /** Of its jail. */
  list(path: string): string[] {
    return readdirSync(`/proc/${this.pid}/root${path}`).sort();
  }

  /** What it has open, as device and inode, or what the kernel calls it, and whether it may write there. */
  get descriptors(): { what: string; writable: boolean }[] {
    return readdirSync(`/proc/${this.pid}/fd`).map((fd) => {
      const flags = Number.parseInt(/^flags:\s+(\d+)$/m.exec(this.read(`fdinfo/${fd}`))?.[1] ?? '', 8);
      return { what: identityOf(`/proc/${this.pid}/fd/${fd}`), writable: (flags & 3) !== 0 };
    });
  }
}

/** Of files their inode, of all else its kind. */
export function identityOf(path: string): string {
  const stats = statSync(path, { bigint: true });
  if (stats.isFile()) return `file ${stats.dev}:${stats.ino}`;
  return stats.isCharacterDevice() ? `device ${stats.rdev}` : readlinkSync(path).replace(/\[\d+\]$/, '');
}

/**
 * Runs JavaScript as the user of this VM's VMM, in a jail that differs from its own by one thing: there is a Node in it. Resolves with what it
 * printed. What QEMU may do only while it starts, it may do.
 */
export async function runInJailOf(
  vmm: ConfinedVmm,
  options: { machineDirectory: string; imagePath: string; rootsDirectory: string; script: string },
): Promise<string> {
  const { machineDirectory: directory, imagePath, rootsDirectory, script } = options;
  const { directory: vm, sysfs, vfio, ...files } = jailed;
  const root = await prepareVmmRoot(rootsDirectory, {
    programs: [process.execPath],
    files: [],
    devices: plainDevices,
    places: { directories: [vm, sysfs, vfio], files: Object.values(files) },
  });
  const limits = limitsOf({ cpus: 1, memoryMiB: 256 }, { accelerator: 'tcg', largestFileBytes: 1024 ** 3 });
  const cell = {
    uid: vmm.uid,
    cgroup: vmm.cgroup,
    ownedPaths: [],
    own: () => {},
    end: async () => ({ outOfMemory: false }),
  };
  const jail = qemuJail(root, cell, limits, {
    ...{ directory, imagePath, sharedMemory: false },
    writableDiskPath: join(directory, 'writable.img'),
    memoryPath: join(directory, 'memory'),
  });
  const child = await startChild({
    program: process.execPath,
    args: ['--input-type=module', '-e', script],
    cwd: vm,
    env: {},
    session: false,
    stdio: ['ignore', 'pipe', 'pipe'],
    jail,
  });
  const { code, signal, stdout, stderr } = await child.ended;
  if (code !== 0) throw new Error(`the program in the jail ended with ${code ?? signal}: ${stdout}${stderr}`);
  return stdout;
}

/** The jail of a QEMU: what it sees of the host, and by which names. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Cell } from '../../confinement/confinement.ts';
import type { Limits } from '../../confinement/limits.ts';
import { plainDevices, prepareVmmRoot, removeOtherVmmRoots } from '../../confinement/vmm-root.ts';
import type { Jail } from '../jail.ts';
import { type Accelerator, FIRMWARE_PATH, QEMU_PROGRAM, RUN_DIRECTORY } from './command-line.ts';
import type { ShownDevices } from './passed-devices.ts';

/** Where the files of a VM are in its jail. */
export const jailed = {
  directory: '/vm',
  image: '/image',
  disk: '/disk',
  memory: '/memory',
  kernel: '/kernel',
  initramfs: '/initramfs',
  sysfs: '/sys',
  vfio: '/dev/vfio',
} as const;

/** Debian builds it apart; elsewhere it may be a part of QEMU. */
const TCG_MODULE = '/usr/lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so';
/** What QEMU loads for a kernel that it is given, and for its interrupt controller. */
const FIRMWARE_FILES = ['pvh.bin', 'linuxboot_dma.bin', 'kvmvapic.bin'].map((name) => `/usr/share/qemu/${name}`);
const KVM = { path: '/dev/kvm', major: 10, minor: 232 };

export async function prepareQemuRoot(dataDirectory: string, accelerator: Accelerator): Promise<string> {
  const directory = join(dataDirectory, 'vmm-root');
  const root = await prepareVmmRoot(directory, {
    programs: [QEMU_PROGRAM, ...(accelerator === 'tcg' ? [TCG_MODULE].filter(existsSync) : [])],
    files: [FIRMWARE_PATH, ...FIRMWARE_FILES.filter(existsSync)],
    devices: [...plainDevices, ...(accelerator === 'kvm' ? [KVM] : [])],
    places: {
      directories: [jailed.directory, jailed.sysfs, jailed.vfio],
      files: [jailed.image, jailed.disk, jailed.memory, jailed.kernel, jailed.initramfs],
    },
  });
  await removeOtherVmmRoots(directory, root);
  return root;
}

export interface JailFiles {
  directory: string;
  imagePath: string;
  writableDiskPath: string;
  memoryPath: string;
  /** Of a template in the making: its memory is the file. Everybody else's is never written. */
  sharedMemory: boolean;
  /** Read at boot alone. */
  kernel?: { kernelPath: string; initramfsPath: string } | undefined;
  networkNamespacePath?: string | undefined;
  devices?: ShownDevices | undefined;
}

export function qemuJail(root: string, cell: Cell, limits: Limits, files: JailFiles): Jail {
  const { directory, kernel, networkNamespacePath, sharedMemory, devices } = files;
  const bind = (source: string, target: string, writable = false) => ({ source, target, writable });
  return {
    root,
    binds: [
      bind(directory, jailed.directory),
      bind(join(directory, RUN_DIRECTORY), join(jailed.directory, RUN_DIRECTORY), true),
      bind(files.imagePath, jailed.image),
      bind(files.writableDiskPath, jailed.disk, true),
      bind(files.memoryPath, jailed.memory, sharedMemory),
      ...(kernel === undefined
        ? []
        : [bind(kernel.kernelPath, jailed.kernel), bind(kernel.initramfsPath, jailed.initramfs)]),
      ...(devices === undefined
        ? []
        : [bind(devices.sysfs, jailed.sysfs), { ...bind(devices.nodeDirectory, jailed.vfio), devices: true }]),
    ],
    uid: cell.uid,
    gid: cell.uid,
    ...(networkNamespacePath === undefined ? {} : { networkNamespacePath }),
    cgroupProcs: cell.cgroup.procsPaths,
    limits: {
      openFiles: limits.openFiles,
      fileSizeBytes: limits.fileSizeBytes,
      // A device may reach all of its VM's memory at any time.
      ...(devices === undefined ? {} : { lockedBytes: limits.memoryBytes }),
    },
    seccomp: 'qemu',
    readOnlyOpens: sharedMemory ? [] : [jailed.memory],
  };
}

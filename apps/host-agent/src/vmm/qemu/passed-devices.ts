/**
 * Devices of the host that a QEMU gets. In its jail it finds of them their nodes in /dev/vfio, its user's alone, and of sysfs the two links that it looks up: the group of
 * a device, and whether it is a mediated one. Nothing else of either is there.
 */
import { mkdir, stat, symlink } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { AppError } from '@fuse/contract';
import { runProgram } from '../children.ts';
import type { PassedDevice } from '../driver.ts';

const SYSTEM_PATH = '/usr/sbin:/usr/bin:/sbin:/bin';
const placeInSysfs = ({ bus, name }: PassedDevice): string => `bus/${bus}/devices/${name}`;

export const passedDeviceArguments = (devices: readonly PassedDevice[]): string[] =>
  devices.flatMap((device) => ['-device', `vfio-pci,sysfsdev=/sys/${placeInSysfs(device)}`]);

export interface ShownDevices {
  /** Seen as /sys. */
  sysfs: string;
  /** Seen as /dev/vfio. */
  nodeDirectory: string;
  nodes: string[];
}

/** In the machine's directory, with which it goes. */
export async function showDevices(directory: string, devices: readonly PassedDevice[]): Promise<ShownDevices> {
  const sysfs = join(directory, 'devices', 'sys');
  const nodeDirectory = join(directory, 'devices', 'vfio');
  await mkdir(nodeDirectory, { recursive: true, mode: 0o755 });
  for (const device of devices) {
    const place = join(sysfs, placeInSysfs(device));
    await mkdir(place, { recursive: true, mode: 0o755 });
    await symlink(`/sys/kernel/iommu_groups/${device.group}`, join(place, 'iommu_group'));
    await symlink(`/sys/bus/${device.bus}`, join(place, 'subsystem'));
  }
  const paths = new Set(devices.flatMap(({ containerPath, nodePath }) => [containerPath, nodePath]));
  const nodes = await Promise.all([...paths].map((path) => copyNode(path, join(nodeDirectory, basename(path)))));
  return { sysfs, nodeDirectory, nodes };
}

/** Another node of the same device, which can be given to another user. */
async function copyNode(path: string, to: string): Promise<string> {
  const found = await stat(path).catch(() => undefined);
  if (found?.isCharacterDevice() !== true)
    throw new AppError('unavailable', `this host has no ${path}, by which its devices are passed through`, {
      details: { reason: 'gpus' },
      hint: 'load the kernel module vfio-pci, and bind the device to it',
    });
  const [major, minor] = [(found.rdev >> 8) & 0xfff, (found.rdev & 0xff) | ((found.rdev >> 12) & 0xfff00)];
  await runProgram('mknod', ['-m', '600', to, 'c', String(major), String(minor)], { path: SYSTEM_PATH });
  return to;
}

/** What this host offers. */
import { stat } from 'node:fs/promises';
import type { HostCapacityReport } from '@fuse/host-protocol';
import { freeDiskBytes } from './disk-full.ts';
import { writableDiskPath } from './machine.ts';
import type { VmHost } from './vm-host.ts';
import type { Vms } from './vms.ts';

const GIB = 1024 ** 3;

export interface OfferedCapacity {
  cpus: number;
  ramMb: number;
  /** Undefined: what the disk has, beside what the VMs that exist take of it already. */
  storageGb: number | undefined;
  maxVms: number;
}

interface Room {
  storageGb: number;
  freeStorageGb: number;
}

/** Measured: what the disk has now, and what it would have without the VMs that exist. */
async function measureRoom(vmsDirectory: string, vms: Vms, reserveBytes: number): Promise<Room> {
  const disks = vms.machineDirectories().map(async (directory) => {
    const disk = await stat(writableDiskPath(directory)).catch(() => undefined);
    return (disk?.blocks ?? 0) * 512;
  });
  const usedBytes = (await Promise.all(disks)).reduce((sum, bytes) => sum + bytes, 0);
  const freeBytes = (await freeDiskBytes(vmsDirectory)) - reserveBytes;
  const wholeGb = (bytes: number) => Math.max(0, Math.floor(bytes / GIB));
  return { storageGb: wholeGb(freeBytes + usedBytes), freeStorageGb: wholeGb(freeBytes) };
}

export async function capacityReport(
  offered: OfferedCapacity,
  { driver, network, gpus, vms, vmsDirectory, templates, storageReserveBytes }: VmHost & { vms: Vms },
): Promise<HostCapacityReport> {
  const { storageGb, freeStorageGb } = await measureRoom(vmsDirectory, vms, storageReserveBytes);
  return {
    cpus: offered.cpus,
    ram_mb: offered.ramMb,
    storage_gb: offered.storageGb ?? storageGb,
    free_storage_gb: freeStorageGb,
    vm_count: offered.maxVms,
    arch: process.arch === 'arm64' ? 'arm64' : 'amd64',
    ...(await gpus.report()),
    backend: driver.name,
    accelerator: driver.accelerator,
    confined: driver.confined,
    templates: await templates.list(),
    ...(network.missing === undefined ? {} : { no_network: `lacks ${network.missing}` }),
  };
}

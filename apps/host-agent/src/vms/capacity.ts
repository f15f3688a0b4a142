/** What this host offers. */
import { stat } from 'node:fs/promises';
import type { HostCapacityReport } from '@fuse/host-protocol';
import type { VmmDriver } from '../vmm/driver.ts';
import { freeDiskBytes } from './disk-full.ts';
import { writableDiskPath } from './machine.ts';
import type { Vms } from './vms.ts';

const GIB = 1024 ** 3;

export interface OfferedCapacity {
  cpus: number;
  ramMb: number;
  /** Undefined: what the disk has, beside what the VMs that exist take of it already. */
  storageGb: number | undefined;
  maxVms: number;
}

export async function measureStorageGb(vmsDirectory: string, vms: Vms, reserveBytes: number): Promise<number> {
  const disks = vms.machineDirectories().map(async (directory) => {
    const disk = await stat(writableDiskPath(directory)).catch(() => undefined);
    return (disk?.blocks ?? 0) * 512;
  });
  const usedBytes = (await Promise.all(disks)).reduce((sum, bytes) => sum + bytes, 0);
  return Math.max(0, Math.floor(((await freeDiskBytes(vmsDirectory)) + usedBytes - reserveBytes) / GIB));
}

export function capacityReport(
  offered: OfferedCapacity & { storageGb: number },
  driver: VmmDriver,
): HostCapacityReport {
  return {
    cpus: offered.cpus,
    ram_mb: offered.ramMb,
    storage_gb: offered.storageGb,
    vm_count: offered.maxVms,
    arch: process.arch === 'arm64' ? 'arm64' : 'amd64',
    gpus: 0,
    gpu_kind: '',
    backend: driver.name,
    accelerator: driver.accelerator,
  };
}

/** From nothing to a VM that may be handed over; on failure nothing but its directory is left. */
import { join } from 'node:path';
import type { CreateVm, HostVm } from '@fuse/host-protocol';
import type { Guest } from '../guest/guest.ts';
import { type ImageAsset, imageNamed } from '../images/assets.ts';
import type { MachineSpec, Vmm } from '../vmm/driver.ts';
import { copyWritableDisk, createWritableDisk } from '../vmm/machine-disk.ts';
import { requireFreeDisk } from './disk-full.ts';
import { handOver } from './hand-over.ts';
import type { VmHost } from './vm-host.ts';

type Timings = NonNullable<HostVm['timings']>;

export interface StartedMachine {
  vmm: Vmm;
  guest: Guest;
  generation: number;
  timings: Timings;
}

export const writableDiskPath = (directory: string): string => join(directory, 'writable.img');

export async function startMachine(
  host: VmHost,
  order: CreateVm,
  directory: string,
  signal: AbortSignal,
): Promise<StartedMachine> {
  const timings: Timings = {};
  const timed = async <T>(phase: keyof Timings, work: () => Promise<T>): Promise<T> => {
    const from = performance.now();
    const result = await work();
    timings[phase] = roundMs(performance.now() - from);
    return result;
  };
  const from = performance.now();
  const image = imageNamed(host.assets, order.image);
  await requireFreeDisk(host.vmsDirectory, host.storageReserveBytes);
  const vmm = await (order.start === 'cold' ? bootCold : restoreTemplate)(host, order, image, directory, timed, signal);
  const guest = host.connectGuest(vmm);
  try {
    await timed('channel_ms', () => guest.ready(signal));
    const { generation } = await timed('identity_ms', () =>
      handOver(guest, { hostname: order.hostname, previousGeneration: 0, reason: 'create', log: host.log }, signal),
    );
    signal.throwIfAborted();
    timings.total_ms = roundMs(performance.now() - from);
    return { vmm, guest, generation, timings };
  } catch (error) {
    await Promise.allSettled([guest[Symbol.asyncDispose](), vmm.destroy()]);
    throw error;
  }
}

type Start = (
  host: VmHost,
  order: CreateVm,
  image: ImageAsset,
  directory: string,
  timed: <T>(phase: keyof Timings, work: () => Promise<T>) => Promise<T>,
  signal: AbortSignal,
) => Promise<Vmm>;

const restoreTemplate: Start = async (host, order, image, directory, timed, signal) => {
  const template = await timed('template_ms', () => host.templates.ensure(image, order.shape, signal));
  await timed('disk_ms', () => copyWritableDisk(template.diskPath, writableDiskPath(directory), signal));
  return timed('vmm_ms', () =>
    host.driver.restore(
      {
        ...machineSpec(host, order, image, directory),
        snapshot: template.snapshot,
      },
      signal,
    ),
  );
};

const bootCold: Start = async (host, order, image, directory, timed, signal) => {
  await timed('disk_ms', () => createWritableDisk(writableDiskPath(directory), order.shape.storage_gb, signal));
  return timed('vmm_ms', () => host.driver.boot(machineSpec(host, order, image, directory), signal));
};

function machineSpec(
  host: VmHost,
  order: CreateVm,
  image: ImageAsset,
  directory: string,
): MachineSpec & { kernelPath: string; initramfsPath: string } {
  return {
    directory,
    shape: { cpus: order.shape.cpus, memoryMiB: order.shape.ram_mb },
    imagePath: image.path,
    writableDiskPath: writableDiskPath(directory),
    kernelPath: host.assets.kernel.path,
    initramfsPath: host.assets.initramfs.path,
  };
}

const roundMs = (ms: number): number => Math.round(ms * 10) / 10;

/**
 * From nothing to a VM that may be handed over, in two steps. Preparing puts its disk in place and finds its memory; nothing that runs is
 * touched. Launching starts the VMM; on failure nothing but its directory is left.
 */
import type { CreateVm, HostVm } from '@fuse/host-protocol';
import { imageNamed } from '../images/assets.ts';
import type { MachineSpec, SnapshotFiles, Vmm } from '../vmm/driver.ts';
import { copyWritableDisk, createWritableDisk } from '../vmm/machine-disk.ts';
import { requireFreeDisk } from './disk-full.ts';
import { handOver, type NewMachine } from './hand-over.ts';
import { type Machine, writableDiskPath } from './machine.ts';
import { prepareFromSnapshot } from './snapshot-source.ts';
import type { VmHost } from './vm-host.ts';

type Timings = NonNullable<HostVm['timings']>;

export class Phases {
  readonly timings: Timings = {};
  readonly #fromMs = performance.now();

  async timed<T>(phase: keyof Timings, work: () => Promise<T>): Promise<T> {
    const from = performance.now();
    const result = await work();
    this.timings[phase] = roundMs(performance.now() - from);
    return result;
  }

  end(): Timings {
    return { ...this.timings, total_ms: roundMs(performance.now() - this.#fromMs) };
  }
}

/** Its disk lies in its directory. Held until the VM has been launched, or will not be. */
export interface PreparedMachine extends AsyncDisposable {
  /** What it is restored from; without, it boots. */
  memory: SnapshotFiles | undefined;
  /** It boots from the disk of a snapshot whose memory cannot be used here. */
  fellBack?: boolean;
}

export interface StartedMachine extends Machine {
  generation: number;
}

export async function prepareNew(
  host: VmHost,
  order: CreateVm,
  directory: string,
  phases: Phases,
  signal: AbortSignal,
): Promise<PreparedMachine> {
  const image = imageNamed(host.assets, order.image);
  await requireFreeDisk(host.vmsDirectory, host.storageReserveBytes);
  if (order.seed !== undefined) return prepareFromSnapshot(host, order.seed, order, directory, phases, signal);
  const diskPath = writableDiskPath(directory);
  if (order.start === 'cold') {
    await phases.timed('disk_ms', () => createWritableDisk(diskPath, order.shape.storage_gb, signal));
    return prepared(undefined);
  }
  const template = await phases.timed('template_ms', () => host.templates.ensure(image, order.shape, signal));
  await phases.timed('disk_ms', () => copyWritableDisk(template.diskPath, diskPath, signal));
  return prepared(template.snapshot);
}

export async function launchMachine(
  host: VmHost,
  start: {
    order: CreateVm;
    directory: string;
    memory: SnapshotFiles | undefined;
    reason: NewMachine['reason'];
    previousGeneration: number;
  },
  phases: Phases,
  signal: AbortSignal,
): Promise<StartedMachine> {
  const { order, directory, reason, previousGeneration } = start;
  const vmm = await phases.timed('vmm_ms', () => startVmm(host, start, signal));
  const guest = host.connectGuest(vmm);
  try {
    await phases.timed('channel_ms', () => guest.ready(signal));
    const { generation } = await phases.timed('identity_ms', () =>
      handOver(guest, { hostname: order.hostname, previousGeneration, reason, log: host.log }, signal),
    );
    signal.throwIfAborted();
    return { vmm, guest, directory, generation };
  } catch (error) {
    await Promise.allSettled([guest[Symbol.asyncDispose](), vmm.destroy()]);
    throw error;
  }
}

export const prepared = (memory: SnapshotFiles | undefined): PreparedMachine => ({
  memory,
  [Symbol.asyncDispose]: async () => {},
});

async function startVmm(
  host: VmHost,
  { order, directory, memory }: { order: CreateVm; directory: string; memory: SnapshotFiles | undefined },
  signal: AbortSignal,
): Promise<Vmm> {
  const spec: MachineSpec & { kernelPath: string; initramfsPath: string } = {
    directory,
    shape: { cpus: order.shape.cpus, memoryMiB: order.shape.ram_mb },
    imagePath: imageNamed(host.assets, order.image).path,
    writableDiskPath: writableDiskPath(directory),
    kernelPath: host.assets.kernel.path,
    initramfsPath: host.assets.initramfs.path,
  };
  return memory === undefined
    ? host.driver.boot(spec, signal)
    : host.driver.restore({ ...spec, snapshot: memory }, signal);
}

const roundMs = (ms: number): number => Math.round(ms * 10) / 10;

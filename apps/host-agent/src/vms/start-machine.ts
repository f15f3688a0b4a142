/**
 * From nothing to a VM that may be handed over, in two steps. Preparing puts its disk in place and finds its memory; nothing that runs is
 * touched. Launching starts the VMM; on failure nothing but its directory is left.
 */
import type { CreateVm, HostVm } from '@fuse/host-protocol';
import { imageNamed } from '../images/assets.ts';
import { cardOf, type Slot } from '../network/slot.ts';
import { type VmNetworkState, wantsNetwork } from '../network/vm-network.ts';
import type { MachineSpec, PassedDevice, SnapshotFiles, Vmm } from '../vmm/driver.ts';
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
  networkCard: boolean;
  devices?: readonly PassedDevice[];
}

export interface StartedMachine extends Machine {
  generation: number;
  /** Where it has a card. */
  slot?: Slot;
}

export async function prepareNew(
  host: VmHost,
  order: CreateVm,
  directory: string,
  phases: Phases,
  signal: AbortSignal,
): Promise<PreparedMachine> {
  const devices = order.gpus === undefined ? [] : await host.gpus.passThrough(order.gpus);
  return Object.assign(await prepareDisk(host, order, directory, phases, signal), { devices });
}

async function prepareDisk(
  host: VmHost,
  order: CreateVm,
  directory: string,
  phases: Phases,
  signal: AbortSignal,
): Promise<PreparedMachine> {
  const image = imageNamed(host.assets, order.image);
  const networkCard = wantsNetwork(order.network);
  if (networkCard) host.network.requireAvailable();
  await requireFreeDisk(host.vmsDirectory, host.storageReserveBytes);
  if (order.seed !== undefined) return prepareFromSnapshot(host, order.seed, order, directory, phases, signal);
  const diskPath = writableDiskPath(directory);
  if (order.start === 'cold' || order.gpus !== undefined) {
    await phases.timed('disk_ms', () => createWritableDisk(diskPath, order.shape.storage_gb, signal));
    return prepared(undefined, networkCard);
  }
  const template = await phases.timed('template_ms', () =>
    host.templates.ensure(image, order.shape, signal, { networkCard }),
  );
  await phases.timed('disk_ms', () => copyWritableDisk(template.diskPath, diskPath, signal));
  return prepared(template.snapshot, networkCard);
}

export async function launchMachine(
  host: VmHost,
  start: {
    order: CreateVm;
    directory: string;
    memory: SnapshotFiles | undefined;
    devices?: readonly PassedDevice[] | undefined;
    reason: NewMachine['reason'];
    previousGeneration: number;
    /** Of a VM with a card. */
    network: { vmId: string; state: VmNetworkState } | undefined;
  },
  phases: Phases,
  signal: AbortSignal,
): Promise<StartedMachine> {
  const { network } = start;
  if (network === undefined) return launch(host, start, phases, signal);
  const slot = await phases.timed('network_ms', () => host.network.attach(network.vmId, network.state, signal));
  try {
    return { ...(await launch(host, { ...start, slot }, phases, signal)), slot };
  } catch (error) {
    await host.network.detach(network.vmId);
    throw error;
  }
}

type Launch = Omit<Parameters<typeof launchMachine>[1], 'network'> & { slot?: Slot };

async function launch(host: VmHost, start: Launch, phases: Phases, signal: AbortSignal): Promise<StartedMachine> {
  const { order, directory, reason, previousGeneration, slot } = start;
  const vmm = await phases.timed('vmm_ms', () => startVmm(host, start, signal));
  const guest = host.connectGuest(vmm);
  try {
    await phases.timed('channel_ms', () => guest.ready(signal));
    const { generation } = await phases.timed('identity_ms', () =>
      handOver(guest, { hostname: order.hostname, previousGeneration, reason, mac: slot?.mac, log: host.log }, signal),
    );
    signal.throwIfAborted();
    return { vmm, guest, directory, generation };
  } catch (error) {
    await Promise.allSettled([guest[Symbol.asyncDispose](), vmm.destroy()]);
    throw error;
  }
}

export const prepared = (memory: SnapshotFiles | undefined, networkCard: boolean): PreparedMachine => ({
  memory,
  networkCard,
  [Symbol.asyncDispose]: async () => {},
});

async function startVmm(
  host: VmHost,
  { order, directory, memory, devices = [], slot }: Pick<Launch, 'order' | 'directory' | 'memory' | 'devices' | 'slot'>,
  signal: AbortSignal,
): Promise<Vmm> {
  const spec: MachineSpec & { kernelPath: string; initramfsPath: string } = {
    directory,
    shape: { cpus: order.shape.cpus, memoryMiB: order.shape.ram_mb },
    imagePath: imageNamed(host.assets, order.image).path,
    writableDiskPath: writableDiskPath(directory),
    kernelPath: host.assets.kernel.path,
    initramfsPath: host.assets.initramfs.path,
    ...(slot === undefined ? {} : { network: cardOf(slot) }),
  };
  return memory === undefined
    ? host.driver.boot({ ...spec, devices }, signal)
    : host.driver.restore({ ...spec, snapshot: memory }, signal);
}

const roundMs = (ms: number): number => Math.round(ms * 10) / 10;

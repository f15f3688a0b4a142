/** A machine that starts from a snapshot of this host, or of the object store. */
import { join } from 'node:path';
import { AppError, invalidField } from '@fuse/contract';
import type { CreateVm, SnapshotSource } from '@fuse/host-protocol';
import { imageNamed } from '../images/assets.ts';
import { noNetworkCardError, wantsNetwork } from '../network/vm-network.ts';
import { type MadeOn, SNAPSHOT_DISK_FILE, type SnapshotRecord } from '../snapshots/snapshot-record.ts';
import type { HeldSnapshot } from '../snapshots/stored-snapshot.ts';
import { copyWritableDisk } from '../vmm/machine-disk.ts';
import { gpusError } from './held-gpus.ts';
import { writableDiskPath } from './machine.ts';
import type { Phases, PreparedMachine } from './start-machine.ts';
import type { VmHost } from './vm-host.ts';

/** What a snapshot that is taken now will need to be used. */
export async function madeHere(host: VmHost, imageName: string): Promise<MadeOn> {
  return {
    image: imageNamed(host.assets, imageName).digest,
    kernel: host.assets.kernel.sha256,
    initramfs: host.assets.initramfs.sha256,
    driver: await host.driver.fingerprint(),
  };
}

export async function prepareFromSnapshot(
  host: VmHost,
  source: SnapshotSource,
  order: CreateVm,
  directory: string,
  phases: Phases,
  signal: AbortSignal,
): Promise<PreparedMachine> {
  const held = await hold(host, source, signal);
  try {
    const { record } = held;
    requireSameMachine(order, record);
    const useMemory = await canUseMemory(host, source, order, record);
    if (record.network_card === true || wantsNetwork(order.network)) host.network.requireAvailable();
    const diskPath = writableDiskPath(directory);
    await phases.timed('disk_ms', () => copyWritableDisk(join(held.directory, SNAPSHOT_DISK_FILE), diskPath, signal));
    return {
      memory: useMemory ? await phases.timed('memory_ms', () => held.machineState()) : undefined,
      fellBack: record.include_memory && !useMemory,
      networkCard: record.network_card === true || wantsNetwork(order.network),
      [Symbol.asyncDispose]: () => held[Symbol.asyncDispose](),
    };
  } catch (error) {
    await held[Symbol.asyncDispose]();
    throw error;
  }
}

async function hold(host: VmHost, source: SnapshotSource, signal: AbortSignal): Promise<HeldSnapshot> {
  const { snapshot_id: snapshotId, manifest_key: manifestKey } = source;
  if (!host.snapshots.has(snapshotId) && manifestKey !== undefined)
    await host.importSnapshot({ snapshotId, manifestKey }, signal);
  return host.snapshots.hold(snapshotId, signal);
}

function requireSameMachine(order: CreateVm, record: SnapshotRecord): void {
  if (record.tag !== order.tag) throw new AppError('not_found', `there is no snapshot "${record.id}"`);
  if (record.image !== order.image) throw invalidField('image', `snapshot "${record.id}" is of image ${record.image}`);
  for (const field of ['cpus', 'ram_mb', 'storage_gb'] as const)
    if (record.shape[field] !== order.shape[field])
      throw invalidField(`shape.${field}`, `snapshot "${record.id}" is of ${record.shape[field]}`);
}

/** 409 when neither its memory nor, as the caller allows, its disk can be used here. */
async function canUseMemory(
  host: VmHost,
  source: SnapshotSource,
  order: CreateVm,
  record: SnapshotRecord,
): Promise<boolean> {
  const here = await madeHere(host, order.image);
  if (here.image !== record.made_on.image) throw incompatible(record, `image ${order.image} has been built anew since`);
  if (!record.include_memory) return false;
  if (order.gpus !== undefined) {
    if (source.fallback === 'disk') return false;
    throw gpusError(`snapshot "${record.id}" has memory, which cannot be restored beside GPUs`);
  }
  if (wantsNetwork(order.network) && record.network_card !== true) {
    if (source.fallback === 'disk') return false;
    throw noNetworkCardError(`the VM of snapshot "${record.id}" had none`);
  }
  const differing = (['driver', 'kernel', 'initramfs'] as const).filter((part) => here[part] !== record.made_on[part]);
  if (differing.length === 0) return true;
  if (source.fallback === 'disk') return false;
  const names = differing.map(
    (part) => ({ driver: 'VMM or CPU model', kernel: 'kernel', initramfs: 'guest agent' })[part],
  );
  throw incompatible(record, `its memory was saved with another ${names.join(', ')}`);
}

function incompatible({ id }: SnapshotRecord, why: string): AppError {
  return new AppError('conflict', `snapshot "${id}" cannot be restored here: ${why}`, {
    details: { reason: 'incompatible' },
    hint: 'start from its disk alone (fallback: disk) where its image is the same, or on a host like the one it was taken on',
  });
}

/** A snapshot of a running VM, which goes on at once. */

import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import type { TakeSnapshot } from '@fuse/host-protocol';
import type { Guest } from '../guest/guest.ts';
import { SNAPSHOT_DISK_FILE } from '../snapshots/snapshot-record.ts';
import type { MakeFiles, StoredSnapshot } from '../snapshots/stored-snapshot.ts';
import { captureDisk, captureWhole, requireRoomFor } from './capture.ts';
import { requireOwnDisk } from './own-disk.ts';
import { madeHere } from './snapshot-source.ts';
import { StuckError } from './stand-still.ts';
import type { VmCore } from './vm-core.ts';

const ANSWER_MS = 10_000;

export async function takeSnapshot(
  core: VmCore,
  id: string,
  { tag, include_memory }: TakeSnapshot,
): Promise<{ snapshot: StoredSnapshot; created: boolean }> {
  const { order, id: vm_id } = core.record;
  if (tag !== order.tag) throw new AppError('conflict', `VM "${vm_id}" belongs to another cluster`);
  const { image, shape } = order;
  const made_on = await madeHere(core.host, image);
  const created_at = new Date().toISOString();
  const parent_id = include_memory ? (core.host.snapshots.lastOf(vm_id) ?? order.seed?.snapshot_id) : undefined;
  const card = core.network === undefined ? {} : { network_card: true };
  const about = { id, tag, vm_id, image, shape, made_on, include_memory, created_at, ...card };
  return core.host.snapshots.add({ ...about, ...(parent_id === undefined ? {} : { parent_id }) }, (to, signal) =>
    core.inTurn(() => capture(core, include_memory, to, signal)),
  );
}

/** What is kept of a guest that has panicked or hangs is good for nothing. */
async function requireAnswer(guest: Guest, signal: AbortSignal): Promise<void> {
  try {
    await guest.health(AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]));
  } catch (cause) {
    signal.throwIfAborted();
    if (cause instanceof AppError && cause.code === 'vm_lost') throw cause;
    throw new AppError('unavailable', 'the guest does not answer: a snapshot of it would not go on either', { cause });
  }
}

async function capture(core: VmCore, includeMemory: boolean, to: string, deleted: AbortSignal): ReturnType<MakeFiles> {
  const machine = core.runningMachine();
  await requireOwnDisk(core);
  await requireRoomFor(core.host, machine, { memory: includeMemory, disk: true });
  const signals = { signal: AbortSignal.any([core.stopping.signal, deleted]), giveUp: core.ending.signal };
  await requireAnswer(machine.guest, signals.signal);
  const from = performance.now();
  core.standStill();
  try {
    const captured = await (includeMemory ? captureWhole : captureDisk)(machine, to, signals);
    await requireOwnDisk(core, join(to, SNAPSHOT_DISK_FILE));
    return captured;
  } catch (error) {
    if (!(error instanceof StuckError)) throw error;
    await core.die(error.message);
    throw core.lost(error);
  } finally {
    core.goOn(performance.now() - from);
  }
}

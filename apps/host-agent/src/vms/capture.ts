/** What a snapshot takes of a running VM, whose disk lies in its machine's directory. */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { captureMachineState } from '../snapshots/machine-state.ts';
import { SNAPSHOT_DISK_FILE } from '../snapshots/snapshot-record.ts';
import { copyWritableDisk } from '../vmm/machine-disk.ts';
import { readIfThere } from './atomic-file.ts';
import { requireFreeDisk } from './disk-full.ts';
import { type Machine, writableDiskPath } from './machine.ts';
import { whileStopped } from './stand-still.ts';
import type { VmHost } from './vm-host.ts';

/** From the call to the stop of the VMM, so mostly what the flush takes; a guest whose host agent died meanwhile thaws then. */
const FREEZE_DEADLINE_MS = 20_000;

export interface Signals {
  /** Ends the work; the VM goes on. */
  signal: AbortSignal;
  /** The VM is being destroyed: it need not go on. */
  giveUp: AbortSignal;
}

/** Memory, devices and disk of one instant. */
export async function captureWhole(
  { vmm, directory: from }: Machine,
  to: string,
  signals: Signals,
): Promise<{ files: string[]; pauseMs: number }> {
  const { result, pauseMs } = await whileStopped(
    vmm,
    async () => {
      const state = captureMachineState(vmm, to, signals.signal);
      const disk = copyWritableDisk(writableDiskPath(from), join(to, SNAPSHOT_DISK_FILE), signals.signal);
      await Promise.allSettled([state, disk]); // nothing is still at work when the VM goes on
      await disk;
      return state;
    },
    signals,
  );
  return { files: [...result, SNAPSHOT_DISK_FILE], pauseMs };
}

/** The disk alone, its file system whole: frozen by the guest, and copied while the VM stands still, however long that takes. */
export async function captureDisk(
  { vmm, guest, directory: from }: Machine,
  to: string,
  signals: Signals,
): Promise<{ files: string[]; pauseMs: number }> {
  try {
    await guest.freeze(FREEZE_DEADLINE_MS, signals.signal);
    const { pauseMs } = await whileStopped(
      vmm,
      () => copyWritableDisk(writableDiskPath(from), join(to, SNAPSHOT_DISK_FILE), signals.signal),
      signals,
    );
    return { files: [SNAPSHOT_DISK_FILE], pauseMs };
  } finally {
    await guest.thaw(signals.giveUp).catch(() => {}); // it thaws by itself at the deadline
  }
}

/** 503 unless there is room for what the VM has written to its memory, and for a copy of its disk. */
export async function requireRoomFor(
  host: VmHost,
  { vmm, directory }: Machine,
  what: { memory: boolean; disk: boolean },
): Promise<void> {
  const memoryBytes = what.memory ? await ownMemoryBytes(vmm.pid) : 0;
  const diskBytes = what.disk ? (await stat(writableDiskPath(directory))).blocks * 512 : 0;
  await requireFreeDisk(host.vmsDirectory, host.storageReserveBytes + memoryBytes + diskBytes);
}

/** Of the process alone, in memory or swapped out. A process that has ended has none. */
async function ownMemoryBytes(pid: number): Promise<number> {
  const status = (await readIfThere(`/proc/${pid}/status`)) ?? '';
  const kib = (field: string) => Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(status)?.[1] ?? 0);
  return (kib('RssAnon') + kib('VmSwap')) * 1024;
}

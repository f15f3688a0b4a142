/** What a snapshot takes of a running VM, whose disk lies in its machine's directory. */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { captureMachineState } from '../snapshots/machine-state.ts';
import { SNAPSHOT_DISK_FILE } from '../snapshots/snapshot-record.ts';
import { copyWritableDisk } from '../vmm/machine-disk.ts';
import { requireFreeDisk } from './disk-full.ts';
import { type Machine, writableDiskPath } from './machine.ts';
import { whileStopped } from './stand-still.ts';
import type { VmHost } from './vm-host.ts';

const MIB = 1024 ** 2;
const FREEZE_DEADLINE_MS = 60_000;

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

/** 503 unless there is room for the most that memory and a copy of the disk may take. */
export async function requireRoomFor(host: VmHost, what: { memoryMiB: number; diskPath?: string }): Promise<void> {
  const disk = what.diskPath === undefined ? 0 : (await stat(what.diskPath)).blocks * 512;
  await requireFreeDisk(host.vmsDirectory, host.storageReserveBytes + what.memoryMiB * MIB + disk);
}

/**
 * Memory and devices of one instant of a VM, as files in a directory of the caller's. This is the one place that knows how memory is kept.
 */
import { join } from 'node:path';
import type { SnapshotFiles, Vmm } from '../vmm/driver.ts';

export const MEMORY_FILE = 'memory';
export const DEVICE_FILE = 'device';

/** Of a paused VM. Resolves with the names of the files that were made; nothing needs to be flushed yet. */
export async function captureMachineState(vmm: Vmm, directory: string, signal?: AbortSignal): Promise<string[]> {
  await vmm.snapshot({ memoryPath: join(directory, MEMORY_FILE), devicePath: join(directory, DEVICE_FILE) }, signal);
  return [MEMORY_FILE, DEVICE_FILE];
}

/** What a VM can be restored from. The files in the directory have been verified; they stay there until the VM runs. */
export async function loadableMachineState(directory: string, _signal?: AbortSignal): Promise<SnapshotFiles> {
  return { memoryPath: join(directory, MEMORY_FILE), devicePath: join(directory, DEVICE_FILE) };
}

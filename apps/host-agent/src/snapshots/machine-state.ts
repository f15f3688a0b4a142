/**
 * Memory and devices of one instant of a VM, as files in a directory of the caller's. This is the one place that knows how memory is kept: as another name
 * of the file that the VM ran on, and layers over it, which their order in the list of files gives: oldest first.
 */
import { randomBytes } from 'node:crypto';
import { basename, join } from 'node:path';
import type { SnapshotFiles, Vmm } from '../vmm/driver.ts';
import { MemoryView } from './memory/memory-view.ts';

export const MEMORY_FILE = 'memory';
export const DEVICE_FILE = 'device';
const LAYER_FILE = /^layer-[0-9a-f]+$/;

export const newLayerName = (): string => `layer-${randomBytes(6).toString('hex')}`;

/** Of a paused VM. Resolves with the names of the files that were made; nothing is flushed yet. */
export async function captureMachineState(vmm: Vmm, directory: string, signal?: AbortSignal): Promise<string[]> {
  const layer = newLayerName();
  const pathOf = (name: string) => join(directory, name);
  const files = { memoryPath: pathOf(MEMORY_FILE), layerPath: pathOf(layer), devicePath: pathOf(DEVICE_FILE) };
  await vmm.capture(files, signal);
  return [MEMORY_FILE, layer, DEVICE_FILE];
}

/** What a VM can be restored from. The files in the directory have been verified; they stay there until the VM runs. */
export function loadableMachineState(
  directory: string,
  names: readonly string[],
): SnapshotFiles & { layerPaths: readonly string[] } {
  return {
    memoryPath: join(directory, MEMORY_FILE),
    layerPaths: layersAmong(names).map((name) => join(directory, name)),
    devicePath: join(directory, DEVICE_FILE),
  };
}

export function layersAmong(names: readonly string[]): string[] {
  return names.map((name) => basename(name)).filter((name) => LAYER_FILE.test(name));
}

/** The memory, to be read; the files in the directory have been verified. */
export function openMemory(directory: string, names: readonly string[]): Promise<MemoryView> {
  return MemoryView.open(loadableMachineState(directory, names));
}

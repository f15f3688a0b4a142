/**
 * How the VMs that start from one snapshot get its memory. A VM puts the layers over its base while it starts, and has their pages to itself: nothing is faster for one.
 * Of many it would be a copy for each, so all but the first share a flat file, when there is enough to share. That is made once for this
 * process: it is not flushed, and whether it is whole is known to its maker alone.
 */
import { randomBytes } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '@fuse/runtime';
import type { SnapshotFiles } from '../vmm/driver.ts';
import { writeFlatMemory } from './memory/flat-memory.ts';

const MIN_LAYER_BYTES = 67_108_864;
export const FLAT_FILE = /^flat-[0-9a-f]+(?:\.making)?$/;

export class SharedMemory {
  readonly #log: Logger;
  readonly #stopping: AbortSignal;
  #starts = 0;
  #flat: { name: string; made: Promise<void> } | undefined;

  /** What it makes is given up when `stopping` aborts. */
  constructor(log: Logger, stopping: AbortSignal) {
    this.#log = log;
    this.#stopping = stopping;
  }

  /** The file's name in the snapshot's directory; it may be in the making. */
  get flatName(): string | undefined {
    return this.#flat?.name;
  }

  /** For one more VM. The snapshot is held meanwhile, so what is being made is waited for. */
  async next(directory: string, files: SnapshotFiles): Promise<SnapshotFiles> {
    const { memoryPath, devicePath, layerPaths = [] } = files;
    this.#starts += 1;
    if (this.#starts === 1 || (await sizeOf(layerPaths)) < MIN_LAYER_BYTES) return files;
    this.#flat ??= this.#make(directory, { memoryPath, layerPaths });
    const flat = this.#flat;
    try {
      await flat.made;
      return { memoryPath: join(directory, flat.name), devicePath };
    } catch (error) {
      this.#stopping.throwIfAborted();
      if (this.#flat === flat) this.#flat = undefined;
      this.#log.warn({ err: error }, 'memory of a snapshot not made flat');
      return files;
    }
  }
  #make(
    directory: string,
    files: { memoryPath: string; layerPaths: readonly string[] },
  ): { name: string; made: Promise<void> } {
    const name = `flat-${randomBytes(6).toString('hex')}`;
    const made = writeFlatMemory(files, join(directory, name), this.#stopping);
    made.catch(() => {}); // whoever waits is told
    return { name, made };
  }
}

async function sizeOf(paths: readonly string[]): Promise<number> {
  const stats = await Promise.all(paths.map((path) => stat(path)));
  return stats.reduce((sum, { size }) => sum + size, 0);
}

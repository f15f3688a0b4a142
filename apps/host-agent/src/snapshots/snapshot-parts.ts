/**
 * A snapshot as flat content, however it is kept: `memory` is the guest's whole address space, `device` the saved devices, `disk` the
 * writable disk. A disk-only snapshot has the last alone.
 */
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { alignedExtents, dataExtents, type Extent } from '../templates/sparse-digest.ts';
import { DEVICE_FILE, MEMORY_FILE, openMemory } from './machine-state.ts';
import { PAGE_BYTES } from './memory/layer-file.ts';
import { readFully } from './memory/whole-io.ts';
import { SNAPSHOT_DISK_FILE, type SnapshotRecord } from './snapshot-record.ts';
import type { HeldSnapshot } from './stored-snapshot.ts';

export const snapshotPartNames = ['memory', 'device', 'disk'] as const;
export type SnapshotPartName = (typeof snapshotPartNames)[number];

/** Where a part is, when it is kept flat. */
export const fileOfPart: Record<SnapshotPartName, string> = {
  memory: MEMORY_FILE,
  device: DEVICE_FILE,
  disk: SNAPSHOT_DISK_FILE,
};

export interface SnapshotPart {
  name: SnapshotPartName;
  sizeBytes: number;
  /** Where data may be, ascending; everything else reads as zeros. */
  extents: readonly Extent[];
  /** Fills the whole of `target` from byte `position`; never asked beyond `sizeBytes`. */
  read(target: Buffer, position: number): Promise<void>;
}

export interface SnapshotParts extends AsyncDisposable {
  parts: readonly SnapshotPart[];
}

/** Its files have been verified, and stay while it is held. */
export async function openSnapshotParts({ directory, record }: HeldSnapshot): Promise<SnapshotParts> {
  const opened: (SnapshotPart & AsyncDisposable)[] = [];
  const close = async () => {
    for (const part of opened) await part[Symbol.asyncDispose]();
  };
  try {
    for (const name of record.include_memory ? snapshotPartNames : (['disk'] as const))
      opened.push(
        await (name === 'memory' ? openLayered(directory, record) : openFlat(name, join(directory, fileOfPart[name]))),
      );
    return { parts: opened, [Symbol.asyncDispose]: close };
  } catch (error) {
    await close();
    throw error;
  }
}

async function openLayered(directory: string, { files }: SnapshotRecord): Promise<SnapshotPart & AsyncDisposable> {
  const names = files.map(({ name }) => name);
  const memory = await openMemory(directory, names);
  try {
    const ofLayers = memory.stack.runs.map(({ firstPage, pages }) => ({
      start: firstPage * PAGE_BYTES,
      end: (firstPage + pages) * PAGE_BYTES,
    }));
    const ofBase = await dataExtents(join(directory, MEMORY_FILE), memory.sizeBytes);
    return {
      name: 'memory',
      sizeBytes: memory.sizeBytes,
      extents: alignedExtents([...ofBase, ...ofLayers], memory.sizeBytes),
      read: (target, position) => memory.read(target, position),
      [Symbol.asyncDispose]: () => memory[Symbol.asyncDispose](),
    };
  } catch (error) {
    await memory[Symbol.asyncDispose]();
    throw error;
  }
}

async function openFlat(name: SnapshotPartName, path: string): Promise<SnapshotPart & AsyncDisposable> {
  const file = await open(path, 'r');
  try {
    const sizeBytes = (await file.stat()).size;
    return {
      name,
      sizeBytes,
      extents: await dataExtents(path, sizeBytes),
      read: (target, position) => readFully(file, target, position),
      [Symbol.asyncDispose]: () => file.close(),
    };
  } catch (error) {
    await file.close();
    throw error;
  }
}

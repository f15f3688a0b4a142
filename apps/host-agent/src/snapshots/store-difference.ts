/**
 * A layer holds all that its VM had written since it was started. Of two snapshots over one memory file the later can do with the layers of the earlier
 * and a layer of what has changed in between. Chains stay short: the first snapshot that would have too many layers keeps its own, which has
 * everything.
 */
import { link, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { layersAmong, MEMORY_FILE, newLayerName, openMemory } from './machine-state.ts';
import { writeDifference } from './memory/layer-difference.ts';

/** With its own. */
export const MAX_LAYERS = 8;
/** Of the whole layer: a larger difference is not worth bytes of the earlier layers that nobody reads any more. */
const MAX_DIFFERENCE_SHARE = 0.5;

export interface StoredState {
  directory: string;
  /** Of its files, the layers oldest first. */
  names: readonly string[];
}

/**
 * Makes the files beside those that are there, and resolves with the names that count from now on; undefined, with nothing made, when the layer is best left
 * as it is. The files of both have been verified.
 */
export async function storeDifference(
  own: StoredState,
  earlier: StoredState,
  signal: AbortSignal,
): Promise<string[] | undefined> {
  const [whole, ...more] = layersAmong(own.names);
  const shared = layersAmong(earlier.names);
  if (whole === undefined || more.length > 0) return undefined;
  if (shared.length === 0 || shared.length >= MAX_LAYERS || !(await haveOneBase(own, earlier))) return undefined;
  const difference = newLayerName();
  const made = [...shared, difference].map((name) => join(own.directory, name));
  let isUseful = false;
  try {
    const { size } = await stat(join(own.directory, whole));
    if ((await differenceTo(earlier, own, difference, signal)) > size * MAX_DIFFERENCE_SHARE) return undefined;
    for (const name of shared) {
      await rm(join(own.directory, name), { force: true }); // of an attempt that was cut off
      await link(join(earlier.directory, name), join(own.directory, name));
    }
    isUseful = true;
  } finally {
    if (!isUseful) for (const path of made) await rm(path, { force: true });
  }
  return own.names.flatMap((name) => (name === whole ? [...shared, difference] : [name]));
}

/** Resolves with the size of the file. */
async function differenceTo(
  earlier: StoredState,
  own: StoredState,
  name: string,
  signal: AbortSignal,
): Promise<number> {
  await using from = await openMemory(earlier.directory, earlier.names);
  await using to = await openMemory(own.directory, own.names);
  return (await writeDifference({ from, to, path: join(own.directory, name) }, signal)).fileBytes;
}

async function haveOneBase(one: StoredState, other: StoredState): Promise<boolean> {
  const [first, second] = await Promise.all(
    [one, other].map(({ directory }) => stat(join(directory, MEMORY_FILE), { bigint: true })),
  );
  return first?.dev === second?.dev && first?.ino === second?.ino;
}

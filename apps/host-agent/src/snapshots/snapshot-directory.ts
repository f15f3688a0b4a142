/** Removing what is in a snapshot's directory, and the directory. */
import { randomBytes } from 'node:crypto';
import { readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { layersAmong } from './machine-state.ts';
import { FLAT_FILE } from './shared-memory.ts';

/** Layers that are not among those names, and flat memory other than this. */
export async function removeUncounted(
  directory: string,
  counting: readonly string[],
  flatName: string | undefined,
): Promise<void> {
  const entries = await readdir(directory);
  const layers = layersAmong(entries).filter((name) => !counting.includes(name));
  const flat = entries.filter((name) => FLAT_FILE.test(name) && (flatName === undefined || !name.startsWith(flatName)));
  for (const name of [...layers, ...flat]) await rm(join(directory, name), { force: true });
}

/** Out of sight in one step. Resolves with the bytes that had no other name; 0 when there was nothing. */
export async function removeSnapshotDirectory(directory: string): Promise<number> {
  const aside = join(dirname(directory), `.removed-${basename(directory)}-${randomBytes(4).toString('hex')}`);
  try {
    await rename(directory, aside);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return 0;
    throw error;
  }
  let freedBytes = 0;
  for (const entry of await readdir(aside, { recursive: true })) {
    const found = await stat(join(aside, entry));
    if (found.isFile() && found.nlink === 1) freedBytes += found.blocks * 512;
  }
  await rm(aside, { recursive: true, force: true });
  return freedBytes;
}

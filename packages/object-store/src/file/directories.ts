/** Directories of the store: made durably, removed when empty. Both run while other puts and deletes do. */
import { mkdir, open, readdir, rename, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { errorCode, isMissing } from './disk-errors.ts';

const RENAME_TRIES = 100;

/** Moves a flushed file into place and flushes every directory from there up to `root`: after a power cut the whole path is there. */
export async function publish(temporary: string, path: string, root: string): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      await mkdir(dirname(path), { recursive: true, mode: 0o700 });
      await rename(temporary, path);
      break;
    } catch (error) {
      // A delete has just removed an empty directory on the way.
      if (errorCode(error) !== 'ENOENT' || attempt === RENAME_TRIES) throw error;
    }
  }
  await flushUp(dirname(path), root);
}

/** Makes the store's own directory, so that it is still there after a power cut. */
export async function makeRoot(directory: string): Promise<void> {
  const firstMade = await mkdir(directory, { recursive: true, mode: 0o700 });
  if (firstMade !== undefined) await flushUp(directory, dirname(firstMade));
}

async function flushUp(directory: string, last: string): Promise<void> {
  for (let each = directory; ; each = dirname(each)) {
    await flush(each);
    if (each === last) return;
  }
}

/** Removes `directory` and its parents below `root` as far as they are empty, and flushes the first that stays. */
export async function prune(directory: string, root: string): Promise<void> {
  let kept = directory;
  for (; kept !== root; kept = dirname(kept)) {
    try {
      await rmdir(kept);
    } catch (error) {
      if (isMissing(error)) continue; // somebody else removed it
      if (errorCode(error) === 'ENOTEMPTY' || errorCode(error) === 'EEXIST') break;
      throw error;
    }
  }
  await flush(kept);
}

/** A directory that is gone was removed by a delete, which flushes in its turn. */
async function flush(directory: string): Promise<void> {
  try {
    const handle = await open(directory, 'r');
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
}

/** The files below `directory` as paths relative to it, in the order of the bytes of those paths; none when it is not there. */
export async function* filesBelow(directory: string): AsyncGenerator<string, void, undefined> {
  const entries = await readdir(directory, { withFileTypes: true }).catch((error: unknown) => {
    if (isMissing(error)) return [];
    throw error;
  });
  // A folder sorts as its children do, by its name with the "/" that follows it.
  const named = entries.map((entry) => ({ entry, sortKey: entry.isDirectory() ? `${entry.name}/` : entry.name }));
  named.sort((a, b) => (a.sortKey < b.sortKey ? -1 : 1));
  for (const { entry, sortKey } of named) {
    if (!entry.isDirectory()) yield entry.name;
    else for await (const below of filesBelow(join(directory, entry.name))) yield sortKey + below;
  }
}

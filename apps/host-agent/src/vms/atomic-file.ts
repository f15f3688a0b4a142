import { renameSync, writeFileSync } from 'node:fs';
import { readFile, rename, writeFile } from 'node:fs/promises';
import { flushDirectoryOf, flushFile } from '../vmm/sparse-copy.ts';

/** The way through the thread pool takes ten times as long as so few bytes into the page cache, and the start of a command waits for it. */
const SMALL_CHARS = 8_192;

/**
 * A reader sees the old text or the new one, whatever happens to this process in between. Nothing is flushed: what runs here does not
 * survive the machine's power cut either. One writer a path at a time.
 */
export async function writeAtomically(path: string, text: string): Promise<void> {
  const next = `${path}.new`;
  if (text.length <= SMALL_CHARS) {
    writeFileSync(next, text, { mode: 0o600 });
    renameSync(next, path);
  } else {
    await writeFile(next, text, { mode: 0o600 });
    await rename(next, path);
  }
}

/** For what does survive it: flushed, and its name too. */
export async function writeDurably(path: string, text: string): Promise<void> {
  const next = `${path}.new`;
  await writeFile(next, text, { mode: 0o600, flush: true });
  await rename(next, path);
  await flushDirectoryOf(path);
}

export async function flushIfThere(path: string): Promise<void> {
  await flushFile(path).catch((error: unknown) => {
    if (!isMissing(error)) throw error;
  });
}

export async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

export const isMissing = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && error.code === 'ENOENT';

import { readFile, rename, writeFile } from 'node:fs/promises';

/**
 * A reader sees the old text or the new one, whatever happens to this process in between. Nothing is flushed: what is written here
 * describes VMs of this machine, and they do not survive its power cut either. One writer a path at a time.
 */
export async function writeAtomically(path: string, text: string): Promise<void> {
  const next = `${path}.new`;
  await writeFile(next, text, { mode: 0o600 });
  await rename(next, path);
}

export async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}

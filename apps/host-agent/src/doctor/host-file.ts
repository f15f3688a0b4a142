import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

/** A file of the kernel's below `root` (`/`, but for tests), without white space around it; undefined where there is none to read. */
export async function hostFile(root: string, path: string): Promise<string | undefined> {
  return readFile(join(root, path), 'utf8').then(
    (text) => text.trim(),
    () => undefined,
  );
}

/** Name and content of each file in a directory; empty where there is none. */
export async function hostFiles(root: string, directory: string): Promise<[string, string][]> {
  const names = await readdir(join(root, directory)).catch((): string[] => []);
  const files = await Promise.all(
    names.sort().map(async (name) => [name, await hostFile(root, join(directory, name))] as const),
  );
  return files.flatMap(([name, text]) => (text === undefined ? [] : [[name, text]]));
}

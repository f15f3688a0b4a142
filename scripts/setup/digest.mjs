import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';

/** @param {string | Uint8Array} data @returns {string} sha256 hex */
export const digest = (data) => createHash('sha256').update(data).digest('hex');

/** @param {string} path @returns {Promise<string>} sha256 hex */
export async function digestFile(path) {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}

/**
 * One digest over names and contents of every file below `directory` that `wanted` takes.
 * @param {string} directory
 * @param {(relativePath: string) => boolean} wanted
 */
export async function digestTree(directory, wanted) {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const paths = entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(directory.length + 1))
    .filter(wanted)
    .sort();
  const hash = createHash('sha256');
  for (const path of paths) hash.update(`${path}\0${digest(await readFile(join(directory, path)))}\n`);
  return hash.digest('hex');
}

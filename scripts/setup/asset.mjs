/**
 * Folders below `<FUSE_HOME>/assets` named after the digest of what they are made from. One is made under another name and renamed
 * into place when whole and flushed, so that a folder with its proper name is complete for ever.
 */
import { mkdtemp, open, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { digest } from './digest.mjs';
import { assetsPath } from './paths.mjs';

const MAKING = '.making-';

/**
 * @template {object} Facts
 * @typedef {{path: string, key: string, made: boolean, facts: Facts}} Asset
 */

/**
 * @template {object} Facts  what `make` found out, kept in the folder's `facts.json`
 * @param {string} name
 * @param {unknown} inputs  everything that the content depends on; JSON
 * @param {(directory: string) => Promise<Facts>} make
 * @returns {Promise<Asset<Facts>>}
 */
export async function ensureAsset(name, inputs, make) {
  const key = digest(JSON.stringify(inputs)).slice(0, 16);
  const path = join(assetsPath, `${name}-${key}`);
  const known = await readFacts(path);
  if (known !== undefined) return { path, key, made: false, facts: known };
  const directory = await mkdtemp(join(assetsPath, `${MAKING}${name}-`));
  try {
    const facts = await make(directory);
    await writeFile(join(directory, 'facts.json'), `${JSON.stringify(facts, null, 2)}\n`);
    for (const entry of await readdir(directory)) await flush(join(directory, entry));
    await rename(directory, path);
    await flush(assetsPath);
    return { path, key, made: true, facts };
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Removes what a set-up that died left half made. Only with the set-up's lock held. */
export async function removeHalfMade() {
  for (const entry of await readdir(assetsPath))
    if (entry.startsWith(MAKING)) await rm(join(assetsPath, entry), { recursive: true, force: true });
}

/** @param {string} path */
export async function flush(path) {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** @param {string} path */
async function readFacts(path) {
  try {
    return JSON.parse(await readFile(join(path, 'facts.json'), 'utf8'));
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code === 'ENOENT') return undefined;
    throw error;
  }
}

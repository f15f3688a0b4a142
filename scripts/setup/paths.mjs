/** Where things are. FUSE_HOME holds everything that Fuse keeps on this machine; the project folder holds only what is built from it. */
import { mkdirSync, realpathSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const projectPath = fileURLToPath(new URL('../..', import.meta.url));
export const homePath = resolve(process.env.FUSE_HOME || join(homedir(), '.fuse'));
/** Free of symbolic links: several homes may share one folder of assets, and what is written into it must hold for all of them. */
export const assetsPath = madeDirectory(join(homePath, 'assets'));
export const manifestPath = join(assetsPath, 'manifest.json');

/** @param {string} path */
function madeDirectory(path) {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  return realpathSync(path);
}

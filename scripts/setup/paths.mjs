/** Where things are. FUSE_HOME holds everything that Fuse keeps on this machine; the project folder holds only what is built from it. */
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const projectPath = fileURLToPath(new URL('../..', import.meta.url));
export const homePath = resolve(process.env.FUSE_HOME || join(homedir(), '.fuse'));
export const assetsPath = join(homePath, 'assets');
export const manifestPath = join(assetsPath, 'manifest.json');

/** npm packages, exactly as package-lock.json has them. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { run } from './command.mjs';
import { projectPath } from './paths.mjs';

/** @typedef {Record<string, {version?: string, integrity?: string, optional?: boolean, link?: boolean}>} LockedPackages */

/** @param {import('./tasks.mjs').StepContext} context */
export async function ensureNpmPackages({ signal, onLine }) {
  const locked = await packagesIn('package-lock.json');
  // npm writes this file when an install is complete, and removes it with the folder when one begins.
  const installed = await packagesIn('node_modules/.package-lock.json').catch(() => undefined);
  if (installed !== undefined && isInstalled(locked, installed)) return { made: false };
  await run(['npm', 'ci', '--no-audit', '--no-fund'], { cwd: projectPath, signal, onLine });
  return { made: true, note: `${Object.keys(locked).length} packages` };
}

/** @param {LockedPackages} locked @param {LockedPackages} installed */
export function isInstalled(locked, installed) {
  return Object.entries(locked).every(([path, wanted]) => {
    if (path === '' || !path.startsWith('node_modules/')) return true;
    const found = installed[path];
    if (found === undefined) return wanted.optional === true; // for another platform
    return found.version === wanted.version && found.integrity === wanted.integrity;
  });
}

/** @param {string} file @returns {Promise<LockedPackages>} */
async function packagesIn(file) {
  return JSON.parse(await readFile(join(projectPath, file), 'utf8')).packages;
}

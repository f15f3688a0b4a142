/** One set-up at a time in a FUSE_HOME. The lock is a file that names its holder's process; a dead holder's lock is taken over. */
import { mkdir, open, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { homePath } from './paths.mjs';

const LOOK_AGAIN_MS = 500;

/**
 * @template T
 * @param {AbortSignal} signal
 * @param {() => Promise<T>} work
 */
export async function withSetupLock(signal, work) {
  const path = join(homePath, 'setup.lock');
  await mkdir(homePath, { recursive: true, mode: 0o700 });
  let said = false;
  while (!(await take(path))) {
    const holder = Number(await readFile(path, 'utf8').catch(() => ''));
    if (Number.isInteger(holder) && holder > 0 && !isAlive(holder)) {
      await rm(path, { force: true });
      continue;
    }
    if (!said) process.stderr.write(`  waiting for another set-up (process ${holder}) to end\n`);
    said = true;
    await wait(LOOK_AGAIN_MS, undefined, { signal });
  }
  try {
    return await work();
  } finally {
    await rm(path, { force: true });
  }
}

/** @param {string} path */
async function take(path) {
  try {
    const handle = await open(path, 'wx', 0o600);
    await handle.writeFile(`${process.pid}\n`);
    await handle.close();
    return true;
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code === 'EEXIST') return false;
    throw error;
  }
}

/** @param {number} pid */
function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return /** @type {NodeJS.ErrnoException} */ (error).code === 'EPERM';
  }
}

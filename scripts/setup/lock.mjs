/** One set-up at a time for a folder: who has bound its name in Linux's abstract socket namespace. The kernel frees it when its holder dies. */
import { realpath } from 'node:fs/promises';
import { createServer } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { digest } from './digest.mjs';

const LOOK_AGAIN_MS = 250;

/**
 * @template T
 * @param {string} directory
 * @param {AbortSignal} signal
 * @param {() => Promise<T>} work
 */
export async function withSetupLock(directory, signal, work) {
  const name = `\0fuse-setup-${digest(await realpath(directory)).slice(0, 32)}`;
  let said = false;
  let release = await take(name);
  while (release === undefined) {
    if (!said) process.stderr.write('  waiting for another set-up to end\n');
    said = true;
    await wait(LOOK_AGAIN_MS, undefined, { signal });
    release = await take(name);
  }
  try {
    return await work();
  } finally {
    release();
  }
}

/** @param {string} name @returns {Promise<(() => void) | undefined>} undefined while another has it */
function take(name) {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', (/** @type {NodeJS.ErrnoException} */ error) =>
      error.code === 'EADDRINUSE' ? resolve(undefined) : reject(error),
    );
    server.listen(name, () => resolve(() => server.close()));
  });
}

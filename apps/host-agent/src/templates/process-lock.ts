/**
 * A lock between processes of one machine, held by binding a name in Linux's abstract socket namespace: the kernel lets one process have
 * it and takes it back when that process dies, however it dies.
 */
import { createHash } from 'node:crypto';
import { createServer, type Server } from 'node:net';
import { sleep } from '@fuse/runtime';

const RETRY_MS = 100;

/** Undefined when somebody has it. */
export async function tryLock(name: string): Promise<AsyncDisposable | undefined> {
  const server = createServer((socket) => socket.destroy());
  const address = `\0fuse-${createHash('sha256').update(name).digest('hex')}`;
  try {
    await listen(server, address);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') return undefined;
    throw error;
  }
  server.unref();
  return { [Symbol.asyncDispose]: () => new Promise((resolve) => server.close(() => resolve())) };
}

export async function lock(name: string, signal?: AbortSignal): Promise<AsyncDisposable> {
  for (;;) {
    const held = await tryLock(name);
    if (held !== undefined) return held;
    await sleep(RETRY_MS, signal);
  }
}

function listen(server: Server, address: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(address, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

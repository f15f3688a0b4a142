/** The port that the API listens on, and who has it when we cannot. */
import { readdir, readFile, readlink } from 'node:fs/promises';
import { createServer } from 'node:net';
import { Failure } from './failure.ts';
import type { ProcessEnv } from './home.ts';

export const LISTEN_HOST = '127.0.0.1';
const DEFAULT_PORT = 8080;

/** 0: any that is free. */
export function portFrom(env: ProcessEnv): number {
  const text = env.FUSE_PORT;
  if (text === undefined || text === '') return DEFAULT_PORT;
  const port = Number(text);
  if (/^\d{1,5}$/.test(text) && port <= 65_535) return port;
  throw new Failure(`FUSE_PORT: ${JSON.stringify(text)} is not a port`, 'give a number from 0 to 65535');
}

export async function requireFreePort(port: number): Promise<void> {
  if (port === 0) return;
  const code = await new Promise<string | undefined>((resolve) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    server.listen(port, LISTEN_HOST, () => server.close(() => resolve(undefined)));
  });
  if (code === undefined) return;
  if (code !== 'EADDRINUSE')
    throw new Failure(`port ${port} cannot be used: ${code}`, 'choose another one: FUSE_PORT=8081 fuse local up');
  const owner = await ownerOf(port);
  throw new Failure(
    `port ${port} is in use${owner === undefined ? '' : ` by ${owner}`}`,
    `stop that, or choose another port: FUSE_PORT=${port + 1} fuse local up`,
  );
}

/** "name (pid n)", when /proc lets us see it. */
async function ownerOf(port: number): Promise<string | undefined> {
  const inodes = await listeningInodes(port);
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name)))
    for (const descriptor of await readdir(`/proc/${pid}/fd`).catch(() => [])) {
      const target = await readlink(`/proc/${pid}/fd/${descriptor}`).catch(() => '');
      const inode = /^socket:\[(\d+)\]$/.exec(target)?.[1];
      if (inode === undefined || !inodes.has(inode)) continue;
      const name = (await readFile(`/proc/${pid}/comm`, 'utf8').catch(() => '')).trim();
      return `${name} (pid ${pid})`;
    }
  return undefined;
}

const LISTEN_STATE = '0A';

async function listeningInodes(port: number): Promise<Set<string>> {
  const suffix = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const tables = await Promise.all(
    ['/proc/net/tcp', '/proc/net/tcp6'].map((path) => readFile(path, 'utf8').catch(() => '')),
  );
  const rows = tables.flatMap((text) => text.split('\n').map((line) => line.trim().split(/\s+/)));
  return new Set(
    rows.flatMap(([, local, , state, , , , , , inode]) =>
      local?.endsWith(suffix) && state === LISTEN_STATE && inode !== undefined ? [inode] : [],
    ),
  );
}

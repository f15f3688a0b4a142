/**
 * Unix sockets that a VM makes in a directory of its own. It may be hostile: a name there may be a link, or no socket. So the name is resolved once, without following a link, and
 * what is connected to is what was looked at. That also takes a path of any length, of which the kernel would take 107 bytes.
 */
import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';

/** Linux's, which Node does not name: a handle on the name itself. Opening one never waits. */
const O_PATH = 0o10000000;

/** Connecting never waits: the kernel takes the connection at once or refuses it. Whoever calls listens for its errors before anything else happens. */
export async function connectUnixSocket(directory: string, name: string): Promise<Socket> {
  const path = join(directory, name);
  const handle = openSync(path, O_PATH | constants.O_NOFOLLOW);
  try {
    if (!fstatSync(handle).isSocket()) throw new Error(`${path} is no socket`);
    return await connectTo(`/proc/self/fd/${handle}`);
  } finally {
    closeSync(handle);
  }
}

function connectTo(path: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ path });
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.off('error', reject);
      resolve(socket);
    });
  });
}

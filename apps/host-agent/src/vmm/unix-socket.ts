/** Unix sockets in a VM's directory, whatever the length of its path: the kernel takes at most 107 bytes of it. */
import { open } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';

const MAX_SOCKET_PATH_BYTES = 107;

/** Connecting never waits: the kernel takes the connection at once or refuses it. */
export async function connectUnixSocket(directory: string, name: string): Promise<Socket> {
  const path = join(directory, name);
  if (Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES) return connectTo(path);
  const handle = await open(directory, 'r');
  try {
    return await connectTo(`/proc/self/fd/${handle.fd}/${name}`);
  } finally {
    await handle.close();
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

/** A TCP proxy that cuts a connection, both ways at once, after so many bytes of the client or of the server. */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

export interface CuttingProxy extends AsyncDisposable {
  port: number;
}

export async function cuttingProxy(to: number, afterUp?: number, afterDown?: number): Promise<CuttingProxy> {
  const open = new Set<Socket>();
  const server = createServer((client) => {
    const service = connect(to, '127.0.0.1');
    for (const socket of [client, service]) {
      open.add(socket);
      socket.on('error', () => {});
      socket.once('close', () => {
        open.delete(socket);
        client.destroy();
        service.destroy();
      });
    }
    relay(client, service, afterUp);
    relay(service, client, afterDown);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port, // it listens on a port
    async [Symbol.asyncDispose]() {
      for (const socket of open) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function relay(from: Socket, to: Socket, after = Number.POSITIVE_INFINITY): void {
  let left = after;
  from.on('data', (chunk: Buffer) => {
    if (chunk.length <= left) {
      left -= chunk.length;
      if (!to.write(chunk)) from.pause();
      return;
    }
    to.write(chunk.subarray(0, left), () => from.destroy());
    left = 0;
    from.pause();
  });
  to.on('drain', () => from.resume());
}

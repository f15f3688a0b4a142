/** A TCP proxy whose connections are cut in the middle, both ways at once, each after as many bytes as `budget` says. */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

export interface UnsteadyProxy extends AsyncDisposable {
  url: string;
  /** Connections that were cut. */
  cuts: number;
}

/** `budget`: bytes of both directions together; undefined lets the connection be. */
export async function unsteadyProxy(toPort: number, budget: () => number | undefined): Promise<UnsteadyProxy> {
  const open = new Set<Socket>();
  const server = createServer({ noDelay: true }, (client) => {
    const service = connect({ port: toPort, host: '127.0.0.1', noDelay: true });
    let left = budget() ?? Number.POSITIVE_INFINITY;
    const cut = () => {
      client.destroy();
      service.destroy();
    };
    for (const [from, to] of [
      [client, service],
      [service, client],
    ] as const) {
      open.add(from);
      from.on('error', () => {}); // 'close' follows
      from.once('close', () => {
        open.delete(from);
        cut();
      });
      from.on('data', (chunk: Buffer) => {
        const part = chunk.subarray(0, left);
        left -= part.length;
        if (!to.write(part)) from.pause();
        if (left > 0) return;
        proxy.cuts += 1;
        from.pause();
        // What came before the cut arrives.
        setImmediate(cut);
      });
      to.on('drain', () => from.resume());
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const proxy: UnsteadyProxy = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, // it listens on a port
    cuts: 0,
    async [Symbol.asyncDispose]() {
      for (const socket of open) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return proxy;
}

/** Stands between the store and a real S3 server, and breaks what a test tells it to. */
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export type Meddle =
  | 'pass'
  /** Answer this status in the server's place. */
  | { status: number }
  /** Let the server do it, then cut the connection before its answer. */
  | 'lose-answer'
  /** Cut the connection after this many bytes of the answer's body. */
  | { cutAfterBytes: number }
  /** Take the request and never answer. */
  | 'hang';

export interface S3Proxy extends AsyncDisposable {
  endpoint: string;
  /** Method and path of each request, in order. */
  seen: string[];
  /** Asked for each request; the default passes it on. */
  meddle: (request: IncomingMessage) => Meddle;
}

export async function startS3Proxy(target: string): Promise<S3Proxy> {
  const server = createServer((incoming, outgoing) => {
    proxy.seen.push(`${incoming.method} ${incoming.url}`);
    relay(target, proxy.meddle(incoming), incoming, outgoing);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo; // it listens on TCP
  const proxy: S3Proxy = {
    endpoint: `http://127.0.0.1:${port}`,
    seen: [],
    meddle: () => 'pass',
    [Symbol.asyncDispose]: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return proxy;
}

function relay(target: string, meddle: Meddle, incoming: IncomingMessage, outgoing: ServerResponse): void {
  if (meddle === 'hang') return void incoming.resume();
  if (typeof meddle === 'object' && 'status' in meddle) {
    incoming.resume();
    outgoing.writeHead(meddle.status, { 'x-amz-request-id': 'proxy' }).end();
    return;
  }
  // The headers go as they came: Host is part of the signature.
  const { method, url, headers } = incoming;
  const onward = request(new URL(url ?? '/', target), { method, headers, agent: false }, (answer) => {
    if (meddle === 'lose-answer') {
      answer.resume().once('end', () => outgoing.destroy());
      return;
    }
    outgoing.writeHead(answer.statusCode ?? 500, answer.headers);
    if (meddle === 'pass') return void answer.pipe(outgoing);
    let left = meddle.cutAfterBytes;
    answer.on('data', (chunk: Buffer) => {
      outgoing.write(chunk.subarray(0, left));
      left -= chunk.length;
      if (left <= 0) setImmediate(() => outgoing.destroy());
    });
    answer.once('end', () => outgoing.end());
  });
  onward.once('error', () => outgoing.destroy());
  outgoing.once('close', () => onward.destroy());
  incoming.pipe(onward);
}

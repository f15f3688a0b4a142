/** Servers that remember who came: HTTP, TLS with HTTP in it, and one that sends back what it gets. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import http from 'node:http';
import https from 'node:https';
import net, { type AddressInfo, type Server } from 'node:net';
import type { SeenConnection } from './world.ts';

const BANNER = 'SSH-2.0-small\r\n';
const CHUNK = Buffer.alloc(64 * 1024, 'x');
const SLOW_MS = 50;

export class WebServers {
  connections: SeenConnection[] = [];

  async http(address: string, port: number, service = 'http'): Promise<void> {
    await listening(
      http.createServer((request, response) => this.#serve(service, request, response)),
      address,
      port,
    );
  }

  async tls(address: string, port: number, certificate: { cert: string; key: string }): Promise<void> {
    const server = https.createServer(certificate, (request, response) => this.#serve('tls', request, response));
    server.on('tlsClientError', () => {});
    await listening(server, address, port);
  }

  async echo(address: string, port: number): Promise<void> {
    const server = net.createServer((socket) => {
      this.connections.push({ service: 'echo', address, port });
      socket.on('error', () => {});
      socket.pipe(socket);
    });
    await listening(server, address, port);
  }

  /** Speaks first, then sends back what it gets. */
  async banner(address: string, port: number): Promise<void> {
    const server = net.createServer((socket) => {
      this.connections.push({ service: 'banner', address, port });
      socket.on('error', () => {});
      socket.write(BANNER);
      socket.pipe(socket);
    });
    await listening(server, address, port);
  }

  /** `/bytes/N`: that many; `/slow`: a line now and then, for ever; `/to/URL`: sends there; a body is counted; anything else is told who served it. */
  #serve(service: string, request: http.IncomingMessage, response: http.ServerResponse): void {
    const { localAddress: address = '', localPort: port = 0 } = request.socket;
    const serverName = 'servername' in request.socket ? request.socket.servername : undefined; // of TLS
    const { host } = request.headers;
    const path = request.url ?? '';
    this.connections.push({
      ...{ service, address, port, path },
      ...(typeof serverName === 'string' ? { serverName } : {}),
      ...(host === undefined ? {} : { host }),
    });
    const size = /^\/bytes\/(\d+)$/.exec(path)?.[1];
    if (size !== undefined) sendBytes(response, Number(size));
    else if (path === '/slow') sendSlowly(response);
    else if (path.startsWith('/to/')) response.writeHead(302, { location: decodeURIComponent(path.slice(4)) }).end();
    else this.#tell(request, response, { service, address, port, host, path, serverName });
  }

  #tell(request: http.IncomingMessage, response: http.ServerResponse, about: object): void {
    let received = 0;
    const digest = createHash('sha256');
    request.on('data', (chunk: Buffer) => {
      received += chunk.length;
      digest.update(chunk);
    });
    request.on('end', () => {
      response.setHeader('content-type', 'application/json');
      response.end(`${JSON.stringify({ ...about, received, sha256: digest.digest('hex') })}\n`);
    });
  }
}

function sendBytes(response: http.ServerResponse, size: number): void {
  response.setHeader('content-length', size);
  let left = size;
  const more = (): void => {
    while (left > 0) {
      const piece = left < CHUNK.length ? CHUNK.subarray(0, left) : CHUNK;
      left -= piece.length;
      if (!response.write(piece)) {
        response.once('drain', more);
        return;
      }
    }
    response.end();
  };
  more();
}

function sendSlowly(response: http.ServerResponse): void {
  const timer = setInterval(() => response.write('tick\n'), SLOW_MS);
  response.on('close', () => clearInterval(timer));
}

async function listening(server: Server, address: string, port: number): Promise<AddressInfo> {
  server.listen(port, address);
  await once(server, 'listening');
  return server.address() as AddressInfo; // it listens on a port
}

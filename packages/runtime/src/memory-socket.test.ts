import http from 'node:http';
import type { Duplex } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';
import { afterEach, expect, test } from 'vitest';
import { memorySockets } from './memory-socket.ts';

const servers: http.Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.closeAllConnections();
});

function serve(listener: http.RequestListener): { server: http.Server; agent: http.Agent } {
  const server = http.createServer(listener);
  servers.push(server);
  const agent = Object.assign(new http.Agent({ keepAlive: true }), {
    createConnection: (options: { allowHalfOpen?: boolean }) => {
      const [near, far] = memorySockets(options);
      server.emit('connection', far);
      return near;
    },
  });
  return { server, agent };
}

function answered(request: http.ClientRequest): Promise<http.IncomingMessage> {
  return new Promise((resolve, reject) => request.once('response', resolve).once('error', reject));
}

test('HTTP over it: kept-alive requests, bodies of any size both ways', async () => {
  const sockets = new Set<Duplex>();
  const { agent } = serve((request, response) => {
    sockets.add(request.socket);
    request.pipe(response);
  });
  for (const size of [0, 1, 3_000_000]) {
    const sent = Buffer.alloc(size, 'x').fill('yz', size >> 1);
    const request = http.request({ method: 'POST', agent });
    const response = answered(request);
    for (let at = 0; at < size; at += 50_000) request.write(sent.subarray(at, at + 50_000));
    request.end();
    expect((await buffer(await response)).equals(sent)).toBe(true);
  }
  expect(sockets.size).toBe(1);
});

test('an answer that is cut does not look whole, and a cut request neither', async () => {
  let heard: Promise<unknown> = Promise.resolve();
  const { agent } = serve((request, response) => {
    if (request.url === '/cut') return void response.write('half', () => response.destroy());
    heard = buffer(request);
    heard.catch(() => {});
    response.flushHeaders();
  });
  const cut = http.request({ path: '/cut', agent });
  const response = answered(cut);
  cut.end();
  await expect(text(await response)).rejects.toThrow('aborted');
  const left = http.request({ method: 'POST', path: '/', agent });
  left.on('error', () => {});
  const head = answered(left);
  left.write('half');
  (await head).on('error', () => {});
  left.destroy();
  await expect(heard).rejects.toThrow();
});

test('an upgraded connection is closed one way first', async () => {
  const { server, agent } = serve(() => {});
  server.on('upgrade', (_request, socket) => {
    socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n');
    let all = '';
    socket.on('data', (chunk) => {
      all += chunk;
    });
    socket.on('end', () => socket.end(`heard ${all}`));
  });
  const request = http.request({
    headers: { connection: 'Upgrade', upgrade: 'x' },
    agent: Object.assign(new http.Agent({ allowHalfOpen: true } as http.AgentOptions), {
      createConnection: (agent as unknown as { createConnection: unknown }).createConnection,
    }),
  });
  const socket = new Promise<Duplex>((resolve) => request.once('upgrade', (_response, upgraded) => resolve(upgraded)));
  request.end();
  const upgraded = await socket;
  upgraded.end('all');
  expect(await text(upgraded)).toBe('heard all');
});

test('a writer waits for a reader, and is told when there is none any more', async () => {
  const [near, far] = memorySockets();
  let written = 0;
  while (near.write(Buffer.alloc(16_384))) written += 1;
  await new Promise((resolve) => setImmediate(resolve));
  expect(near.writableNeedDrain).toBe(true);
  expect(written).toBeLessThan(8);
  far.resume();
  await new Promise((resolve) => near.once('drain', resolve));
  const failed = new Promise<Error>((resolve) => near.once('error', resolve));
  far.destroy();
  await new Promise((resolve) => setImmediate(resolve));
  near.write('x');
  near.resume();
  await expect(failed).resolves.toMatchObject({ code: 'EPIPE' });
});

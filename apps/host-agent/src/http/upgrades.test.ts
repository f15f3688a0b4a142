import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { AppError } from '@fuse/contract';
import { createLogger } from '@fuse/runtime';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Upgrades } from './upgrades.ts';

const AUTHORIZATION = 'Authorization: Bearer secret';

let server: Server;
let stopping: AbortController;
let upgrades: Upgrades;
let requests: string[];

beforeEach(async () => {
  requests = [];
  stopping = new AbortController();
  upgrades = new Upgrades({
    log: createLogger({ name: 'test', level: 'silent' }),
    token: 'secret',
    stopping: stopping.signal,
  });
  server = createServer((request: IncomingMessage, response: ServerResponse) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      requests.push(`${request.method} ${request.url} ${Buffer.concat(chunks)}`);
      response.end('ordinary');
    });
  });
  upgrades.listen(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});
afterEach(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

/** Everything that comes back on one connection until the server ends it. */
function exchange(lines: string[], behind = '', whenAnswered: (text: string) => string | undefined = () => undefined) {
  return new Promise<string>((resolve, reject) => {
    const socket = connect({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', allowHalfOpen: true });
    let text = '';
    socket.on('data', (chunk) => {
      text += chunk;
      const next = whenAnswered(text);
      if (next !== undefined) socket.end(next);
    });
    socket.on('end', () => {
      socket.end();
      resolve(text);
    });
    socket.on('error', reject);
    socket.write(`${lines.join('\r\n')}\r\nHost: x\r\n\r\n${behind}`);
  });
}

const upgrade = (path: string, ...more: string[]) => [
  `GET ${path} HTTP/1.1`,
  'Connection: Upgrade',
  'Upgrade: Fuse-Test/1',
  ...more,
];

describe('upgrades', () => {
  it('answer the exact head, keep what was sent behind the request, and half-close', async () => {
    upgrades.on('/v1/things/:id/connect', 'fuse-test/1', async ({ params, query, accept }) => {
      const socket = accept();
      const chunks: Buffer[] = [];
      for await (const chunk of socket.iterator({ destroyOnReturn: false })) chunks.push(chunk as Buffer);
      socket.write(`${params.id} ${query.get('q')} ${Buffer.concat(chunks)}`);
    });
    const answer = await exchange(upgrade('/v1/things/a%2Fb/connect?q=1', AUTHORIZATION), 'early ', (text) =>
      text.endsWith('\r\n\r\n') ? 'late' : undefined,
    );
    expect(answer).toBe(
      'HTTP/1.1 101 Switching Protocols\r\nUpgrade: fuse-test/1\r\nConnection: Upgrade\r\n\r\na/b 1 early late',
    );
    expect(requests).toEqual([]);
  });

  it('are refused with an envelope: without the token, and when the handler says so', async () => {
    upgrades.on('/v1/things/:id/connect', 'fuse-test/1', async () => {
      throw new AppError('conflict', 'the VM is paused', { details: { state: 'paused' }, retryAfterSeconds: 3 });
    });
    for (const authorization of ['Authorization: Bearer wrong', 'X-None: 1']) {
      const answer = await exchange(upgrade('/v1/things/1/connect', authorization));
      expect(answer).toMatch(/^HTTP\/1.1 401 .*"code":"unauthorized"/s);
    }
    const answer = await exchange(upgrade('/v1/things/1/connect', AUTHORIZATION));
    expect(answer).toMatch(/^HTTP\/1.1 409 .*retry-after: 3\r\n.*"code":"conflict".*"state":"paused"/s);
  });

  it('show no inner error, and cut the connection when one comes late', async () => {
    upgrades.on('/early', 'fuse-test/1', async () => {
      throw new TypeError('hunter2');
    });
    upgrades.on('/late', 'fuse-test/1', async ({ accept }) => {
      accept();
      throw new TypeError('hunter2');
    });
    expect(await exchange(upgrade('/early', AUTHORIZATION))).toMatch(/^HTTP\/1.1 500 (?!.*hunter2)/s);
    const late = await exchange(upgrade('/late', AUTHORIZATION)).catch((error: Error) => error.message);
    expect(late).not.toContain('hunter2');
  });

  it('that nobody offers are ordinary requests, with their body', async () => {
    upgrades.on('/v1/things/:id/connect', 'fuse-test/1', async ({ accept }) => void accept());
    const close = (text: string) => (text.includes('ordinary') ? '' : undefined);
    const others = [
      ['GET /other HTTP/1.1', 'Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c'],
      ['GET /v1/things/1/connect HTTP/1.1', 'Connection: Upgrade', 'Upgrade: websocket'],
      ['GET /v1/things/%zz/connect HTTP/1.1', 'Connection: Upgrade', 'Upgrade: fuse-test/1'],
    ];
    for (const lines of others) expect(await exchange(lines, '', close)).toMatch(/^HTTP\/1.1 200 .*ordinary/s);
    const put = ['PUT /x HTTP/1.1', 'Connection: Upgrade', 'Upgrade: h2c', 'Content-Length: 4'];
    expect(await exchange(put, 'body', close)).toMatch(/^HTTP\/1.1 200 .*ordinary/s);
    expect(requests).toEqual([
      'GET /other ',
      'GET /v1/things/1/connect ',
      'GET /v1/things/%zz/connect ',
      'PUT /x body',
    ]);
  });

  it('end when the host agent stops', async () => {
    upgrades.on('/waits', 'fuse-test/1', async ({ accept, signal }) => {
      accept();
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
    });
    const answer = exchange(upgrade('/waits', AUTHORIZATION), '', (text) => {
      if (text.includes('101')) stopping.abort(new Error('stopping'));
      return undefined;
    });
    expect(await answer).toContain('101 Switching');
    expect(await exchange(upgrade('/waits', AUTHORIZATION))).toContain('HTTP/1.1 500');
  });

  it('hands on to the last byte what its handler has written and ended, however late it is read', async () => {
    const bytes = 33_554_432;
    upgrades.on('/much', 'fuse-test/1', async ({ accept }) => {
      accept().end(Buffer.alloc(bytes, 'x'));
    });
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    socket.write(`${upgrade('/much', AUTHORIZATION).join('\r\n')}\r\nHost: x\r\n\r\n`);
    socket.pause();
    await new Promise((resolve) => setTimeout(resolve, 300)); // the handler has returned long since
    let received = 0;
    for await (const chunk of socket) received += (chunk as Buffer).length;
    expect(received).toBeGreaterThan(bytes);
  });
});

import { AppError, MAX_FRAME_PAYLOAD_BYTES } from '@fuse/contract';
import { createLogger } from '@fuse/runtime';
import { rawExchange, upgradeHead } from '@fuse/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { ClientGone } from './closing.ts';
import { done } from './endings.ts';
import { type App, createHttpServer } from './http-server.ts';
import { createMetrics, type Metrics } from './metrics.ts';
import type { Ending, Peer } from './peer.ts';
import { masterAlone } from './test-authenticator.ts';
import type { UpgradeRequest } from './upgrade-route.ts';

const TOKEN = 'a-master-token';
const AUTHORIZED = { Authorization: `Bearer ${TOKEN}` };
const HEAD_101 = 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: test-echo/1\r\nConnection: Upgrade\r\n\r\n';
const KEY = { 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==', 'Sec-WebSocket-Version': '13' };

let app: App;
let url: string;
let lines: string[];
let metrics: Metrics;
let handle: (request: UpgradeRequest) => Promise<Ending>;

const echo = async (peer: Peer): Promise<Ending> => {
  for await (const bytes of peer.received()) await peer.send(bytes);
  return done('the client ended');
};

async function start(masterToken: string | undefined): Promise<void> {
  lines = [];
  metrics = createMetrics();
  app = createHttpServer({
    version: '9',
    authenticator: masterAlone(masterToken),
    log: createLogger({ name: 'test', destination: { write: (line: string) => void lines.push(line) } }),
    metrics,
    registerRoutes(routes) {
      routes.get('/plain', async () => ({ answer: 'plain' }));
      routes.post('/plain', async (request) => ({ body: request.body }));
      routes.get('/v1/things/:id/talk', async () => {
        throw new AppError('invalid_argument', 'talk requires Upgrade: test-echo/1');
      });
      routes.upgrades.add({
        path: '/v1/things/:id/talk',
        protocols: ['test-echo/1', 'websocket'],
        scope: 'exec',
        halfCloses: true,
        redeemTicket: async (ticket) => {
          if (ticket !== 'good') throw new AppError('unauthorized', 'invalid ticket');
          return {
            tenantId: 'of-the-ticket',
            isMaster: false,
            scopes: new Set(['exec'] as const),
            actorKind: 'ticket',
          };
        },
        handle: (request) => handle(request),
      });
    },
  });
  await app.listen({ port: 0, host: '127.0.0.1' });
  const address = app.server.address();
  url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
}

beforeEach(async () => {
  handle = async ({ accept }) => echo(accept());
  await start(TOKEN);
});
afterEach(() => app.close());

const webSocket = (path = '/v1/things/1/talk', headers: Record<string, string> = AUTHORIZED) =>
  new WebSocket(`${url.replace('http', 'ws')}${path}`, { headers });
const closed = (ws: WebSocket) =>
  new Promise<{ code: number; reason: string }>((resolve) =>
    ws.once('close', (code, reason) => resolve({ code, reason: String(reason) })),
  );
const opened = (ws: WebSocket) => new Promise((resolve, reject) => ws.once('open', resolve).once('error', reject));

describe('an upgrade', () => {
  it('answers exactly the head, and loses nothing of what was sent behind the request', async () => {
    handle = async ({ accept, params, query, protocol }) => {
      const peer = accept();
      await peer.send(Buffer.from(`${params.id} ${query.get('q')} ${protocol} `));
      return echo(peer);
    };
    const { socket, until, ended } = rawExchange(
      url,
      `${upgradeHead('/v1/things/a%2Fb/talk?q=1', 'Test-Echo/1', AUTHORIZED)}early `,
    );
    await until((text) => text.endsWith('early '));
    socket.write('late');
    await until((text) => text.endsWith('late'));
    socket.end();
    expect(await ended).toMatchObject({ bytes: Buffer.from(`${HEAD_101}a/b 1 test-echo/1 early late`), reset: false });
  });

  it('may come on a connection that has answered requests before', async () => {
    const exchange = rawExchange(url, `GET /plain HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${TOKEN}\r\n\r\n`);
    await exchange.until((text) => text.includes('"plain"'));
    exchange.socket.write(`${upgradeHead('/v1/things/1/talk', 'test-echo/1', AUTHORIZED)}x`);
    await exchange.until((text) => text.endsWith(`${HEAD_101}x`));
    exchange.socket.end();
    await exchange.ended;
  });

  it('is refused with the headers and the envelope of every other request, and its connection closed', async () => {
    handle = async () => {
      throw new AppError('conflict', 'vm x is paused', { details: { state: 'paused' }, retryAfterSeconds: 3 });
    };
    const refused = async (headers: Record<string, string>) => {
      const { ended } = rawExchange(url, `${upgradeHead('/v1/things/1/talk', 'test-echo/1', headers)}behind`);
      const { bytes, reset } = await ended;
      expect(reset).toBe(false);
      return bytes.toString();
    };
    const answer = await refused({ ...AUTHORIZED, 'X-Request-ID': 'mine' });
    expect(answer).toMatch(
      /^HTTP\/1\.1 409 Conflict\r\nServer: fuse-orchestrator\/9\r\nX-Request-ID: mine\r\nRetry-After: 3\r\n/,
    );
    expect(answer).toMatch(/\r\nConnection: close\r\n\r\n\{"error":\{"code":"conflict".*"state":"paused"\}\}\}\n$/);
    expect(await refused({})).toMatch(
      /^HTTP\/1\.1 401 .*\r\nX-Request-ID: req_[0-9a-f]{32}\r\n.*"code":"unauthorized"/s,
    );
    expect(await refused({ Authorization: 'Bearer wrong' })).toMatch(/^HTTP\/1\.1 401 /);
    handle = async () => {
      throw new TypeError('hunter2');
    };
    expect(await refused(AUTHORIZED)).toMatch(/^HTTP\/1\.1 500 (?!.*hunter2).*"internal error".*request_id/s);
  });

  it('that its route does not have is an ordinary request of that route', async () => {
    const { until, socket } = rawExchange(url, upgradeHead('/v1/things/1/talk', 'h2c', AUTHORIZED));
    expect(await until((text) => text.endsWith('}\n'))).toMatch(/^HTTP\/1\.1 400 .*requires Upgrade/s);
    socket.destroy();
    expect((await fetch(`${url}/v1/things/1/talk`, { headers: AUTHORIZED })).status).toBe(400);
  });

  it('of HTTP/2 on any other route is answered as plain HTTP, bodies and later requests included', async () => {
    const wish =
      'Host: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n';
    const auth = `Authorization: Bearer ${TOKEN}\r\n`;
    const { until, socket, received } = rawExchange(url, `GET /plain HTTP/1.1\r\n${wish}${auth}\r\n`);
    await until((text) => text.endsWith('"plain"}\n'));
    socket.write(`POST /plain HTTP/1.1\r\n${wish}${auth}Content-Length: 7\r\n\r\n{"a":1}`);
    await until((text) => text.endsWith('{"body":{"a":1}}\n'));
    socket.write(`POST /plain HTTP/1.1\r\n${wish}${auth}Transfer-Encoding: chunked\r\n\r\n4\r\n{"b"\r\n`);
    await new Promise((resolve) => setTimeout(resolve, 20));
    socket.write('3\r\n:2}\r\n0\r\n\r\n');
    await until((text) => text.endsWith('{"body":{"b":2}}\n'));
    socket.write(`POST /plain HTTP/1.1\r\nHost: x\r\n${auth}Content-Length: 7\r\n\r\n{"c":3}`);
    await until((text) => text.endsWith('{"body":{"c":3}}\n'));
    socket.write(`GET /nowhere HTTP/1.1\r\n${wish}\r\n`);
    await until((text) => text.includes('route_not_found'));
    expect(
      received()
        .toString()
        .match(/HTTP\/1\.1 \d+/g),
    ).toEqual(['HTTP/1.1 200', 'HTTP/1.1 200', 'HTTP/1.1 200', 'HTTP/1.1 200', 'HTTP/1.1 404']);
    socket.destroy();
  });

  it('that closes with an error is reset, so that a part is not taken for the whole', async () => {
    handle = async ({ accept }) => {
      const peer = accept();
      await peer.send(Buffer.from('part'));
      for await (const _ of peer.received()) throw new AppError('vm_lost', 'it died');
      return done('');
    };
    const { ended, socket, until } = rawExchange(url, upgradeHead('/v1/things/1/talk', 'test-echo/1', AUTHORIZED));
    await until((text) => text === `${HEAD_101}part`);
    socket.write('go');
    expect((await ended).reset).toBe(true);
  });

  it('is one log line and one count, at its end', async () => {
    const { socket, until, ended } = rawExchange(
      url,
      `${upgradeHead('/v1/things/1/talk?ticket=secret', 'test-echo/1', AUTHORIZED)}12345`,
    );
    await until((text) => text.endsWith('12345'));
    expect(await metrics.registry.metrics()).toContain('orchestrator_connections_open{route="/v1/things/:id/talk"} 1');
    socket.end();
    await ended;
    await expect.poll(() => lines.find((line) => line.includes('"connection"'))).toBeDefined();
    const line = lines.find((each) => each.includes('"connection"')) ?? '{}';
    expect(JSON.parse(line)).toMatchObject({
      path: '/v1/things/1/talk',
      status: 101,
      received_bytes: 5,
      sent_bytes: 5,
      ended: 'the client ended',
    });
    expect(lines.join()).not.toContain('secret');
    const text = await metrics.registry.metrics();
    expect(text).toContain('orchestrator_connections_open{route="/v1/things/:id/talk"} 0');
    expect(text).toContain('orchestrator_http_requests_total{route="/v1/things/:id/talk",method="GET",code="101"} 1');
  });

  it('holds back what a client does not take', async () => {
    let sent = 0;
    const left = new Promise<unknown>((resolve) => {
      handle = async ({ accept }) => {
        const peer = accept();
        try {
          for (;;) {
            await peer.send(Buffer.alloc(1_048_576));
            sent += 1;
          }
        } catch (error) {
          resolve(error);
          throw error;
        }
      };
    });
    const { socket, until } = rawExchange(url, upgradeHead('/v1/things/1/talk', 'test-echo/1', AUTHORIZED));
    await until((text) => text.length > 0);
    socket.pause();
    await settled(() => sent);
    expect(sent).toBeLessThan(32); // what the kernel buffers
    socket.destroy();
    expect(await left).toBeInstanceOf(ClientGone);
  });
});

describe('a WebSocket', () => {
  it('carries binary messages both ways, and half-closes', async () => {
    const ws = webSocket();
    await opened(ws);
    const got: string[] = [];
    ws.on('message', (data, isBinary) => got.push(`${isBinary ? 'binary' : 'text'} ${String(data)}`));
    ws.send(Buffer.from('one'));
    ws.send(Buffer.alloc(0));
    ws.send(Buffer.from('two'));
    await expect.poll(() => got).toEqual(['binary one', 'binary two']);
    handle = async () => done('');
    ws.send('end');
    expect(await closed(ws)).toEqual({ code: 1000, reason: 'the client ended' });
  });

  it('opens with a ticket in place of a token', async () => {
    const tenants: string[] = [];
    handle = async ({ accept, caller }) => {
      tenants.push(caller.tenantId);
      return echo(accept());
    };
    const ws = webSocket('/v1/things/1/talk?ticket=good', {});
    await opened(ws);
    ws.close();
    await closed(ws);
    expect(tenants).toEqual(['of-the-ticket']);
    await expect(opened(webSocket('/v1/things/1/talk?ticket=bad', {}))).rejects.toThrow('401');
    await expect(opened(webSocket('/v1/things/1/talk', {}))).rejects.toThrow('401');
    const { ended } = rawExchange(url, upgradeHead('/v1/things/1/talk?ticket=good', 'test-echo/1'));
    expect(String((await ended).bytes)).toMatch(/^HTTP\/1\.1 401 /);
  });

  it('is refused with an envelope when its handshake is not one', async () => {
    for (const headers of [{}, { ...KEY, 'Sec-WebSocket-Version': '7' }, { ...KEY, 'Sec-WebSocket-Key': 'short' }]) {
      const { ended } = rawExchange(url, upgradeHead('/v1/things/1/talk', 'websocket', { ...AUTHORIZED, ...headers }));
      expect(String((await ended).bytes)).toMatch(/^HTTP\/1\.1 400 .*X-Request-ID.*"invalid_argument"/s);
    }
  });

  it('answers its own 101 without an X-Request-ID', async () => {
    const exchange = rawExchange(url, upgradeHead('/v1/things/1/talk', 'websocket', { ...AUTHORIZED, ...KEY }));
    const head = await exchange.until((text) => text.endsWith('\r\n\r\n'));
    expect(head).toMatch(/^HTTP\/1\.1 101 /);
    expect(head.toLowerCase()).not.toContain('x-request-id');
    exchange.socket.destroy();
  });

  it('closes on text, on messages that are too big, and with the code of what went wrong', async () => {
    const text = webSocket();
    await opened(text);
    text.send('text');
    expect(await closed(text)).toMatchObject({ code: 1003 });
    const big = webSocket();
    await opened(big);
    big.send(Buffer.alloc(MAX_FRAME_PAYLOAD_BYTES + 9));
    expect(await closed(big)).toMatchObject({ code: 1009 });
    handle = async ({ accept }) => {
      accept();
      throw new AppError('not_found', `exec ${'é'.repeat(200)} not found`);
    };
    const late = webSocket();
    const { code, reason } = await closed(late);
    expect(code).toBe(4404);
    expect(reason).toMatch(/^not_found: exec é+$/);
    expect(Buffer.byteLength(reason)).toBeLessThanOrEqual(123);
  });

  it('of another site is refused where nobody needs a token', async () => {
    await app.close();
    await start(undefined);
    await expect(opened(webSocket('/v1/things/1/talk', { Origin: 'https://evil.example' }))).rejects.toThrow('403');
    const own = webSocket('/v1/things/1/talk', { Origin: url });
    await opened(own);
    own.terminate();
  });

  it('holds back what a client does not take', async () => {
    let sent = 0;
    handle = async ({ accept }) => {
      const peer = accept();
      for (;;) {
        await peer.send(Buffer.alloc(524_288));
        sent += 1;
      }
    };
    const ws = webSocket();
    await opened(ws);
    ws.pause();
    await settled(() => sent);
    expect(sent).toBeLessThan(64);
    ws.terminate();
  });

  it('is read no faster than its bytes are taken', async () => {
    let taken = 0;
    let release: () => void = () => {};
    handle = async ({ accept }) => {
      for await (const bytes of accept().received()) {
        taken += bytes.length;
        await new Promise<void>((resolve) => {
          release = resolve;
        });
      }
      return done('');
    };
    const ws = webSocket();
    await opened(ws);
    for (let count = 0; count < 64; count += 1) ws.send(Buffer.alloc(1_048_576));
    await settled(() => ws.bufferedAmount);
    expect(taken).toBe(1_048_576);
    expect(ws.bufferedAmount).toBeGreaterThan(32 * 1_048_576);
    ws.terminate();
    release();
  });
});

describe('a server that stops', () => {
  it('ends what is connected, each in its way, and is not held up', async () => {
    const reasons: unknown[] = [];
    handle = async ({ accept, signal }) => {
      accept();
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      reasons.push(signal.reason);
      signal.throwIfAborted();
      return done('');
    };
    const ws = webSocket();
    await opened(ws);
    const stalled = rawExchange(url, upgradeHead('/v1/things/1/talk', 'test-echo/1', AUTHORIZED));
    await stalled.until((text) => text === HEAD_101);
    const wsEnd = closed(ws);
    await app.close();
    expect(await wsEnd).toEqual({ code: 1012, reason: 'the server restarts' });
    expect((await stalled.ended).reset).toBe(true);
    expect(String(reasons)).toBe('ServerStops,ServerStops');
  });
});

/** Once the number stands still. */
async function settled(read: () => number): Promise<void> {
  for (let before = -1; before !== read(); ) {
    before = read();
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

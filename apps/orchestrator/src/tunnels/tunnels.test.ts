import { createHash, randomBytes } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { createServer, type Server, type Socket } from 'node:net';
import { rawExchange, upgradeHead } from '@fuse/testing';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';

const authorization = { Authorization: `Bearer ${TEST_TOKEN}` };
let scene: TestOrchestrator;
const servers: Server[] = [];
beforeAll(async () => {
  scene = await startTestOrchestrator('pglite');
  await scene.call('POST', '/v1/environments', { task_id: 'tunnels' });
}, 60_000);
afterAll(() => scene?.[Symbol.asyncDispose]());
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

/** On a port of the environment's. */
async function serve(onConnection: (socket: Socket) => void): Promise<number> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => {});
    onConnection(socket);
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

const path = (port: number | string) => `/v1/environments/fuse-tunnels/ports/${port}/connect`;
const raw = (port: number | string, behind = '', options = {}) =>
  rawExchange(scene.orchestrator.url, `${upgradeHead(path(port), 'fuse-tunnel/1', authorization)}${behind}`, options);
const HEAD = 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: fuse-tunnel/1\r\nConnection: Upgrade\r\n\r\n';
const sum = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

async function webSocket(port: number) {
  const ws = new WebSocket(`${scene.orchestrator.url.replace('http', 'ws')}${path(port)}`, { headers: authorization });
  const got: Buffer[] = [];
  const texts: string[] = [];
  ws.on('message', (data: Buffer, isBinary) => (isBinary ? got.push(data) : texts.push(String(data))));
  const closed = new Promise<number>((resolve) => ws.once('close', resolve));
  await new Promise((resolve, reject) => ws.once('open', resolve).once('error', reject));
  return { ws, closed, texts, bytes: () => Buffer.concat(got) };
}

/** Answers, once its client has ended, with the sum of what that sent, and many bytes behind it. */
const summing = (size: number) => {
  const answer = randomBytes(size);
  const onConnection = (socket: Socket) => {
    const hash = createHash('sha256');
    socket.on('data', (bytes) => hash.update(bytes));
    socket.on('end', () => socket.end(Buffer.concat([Buffer.from(hash.digest('hex')), answer])));
  };
  return { answer, onConnection };
};

describe('a tunnel', () => {
  it('carries bytes both ways, those behind the request included, and both half-closes', async () => {
    const { answer, onConnection } = summing(3_000_000);
    const port = await serve(onConnection);
    const sent = randomBytes(5_000_000);
    const { socket, ended } = raw(port, 'early');
    socket.write(sent);
    socket.end();
    const { bytes, reset } = await ended;
    expect(reset).toBe(false);
    expect(bytes.subarray(0, HEAD.length).toString()).toBe(HEAD);
    const body = bytes.subarray(HEAD.length);
    expect(body.subarray(0, 64).toString()).toBe(sum(Buffer.concat([Buffer.from('early'), sent])));
    expect(body.subarray(64).equals(answer)).toBe(true);
  });

  it('is the same over WebSocket', async () => {
    const { answer, onConnection } = summing(2_000_000);
    const port = await serve(onConnection);
    const { ws, closed, texts, bytes } = await webSocket(port);
    const sent = randomBytes(2_000_000);
    ws.send(sent.subarray(0, 1_000_000));
    ws.send(sent.subarray(1_000_000, 1_000_000 + 48_576));
    ws.send(sent.subarray(1_048_576));
    ws.send('end');
    expect(await closed).toBe(1000);
    expect(texts).toEqual(['end']);
    expect(bytes().subarray(0, 64).toString()).toBe(sum(sent));
    expect(bytes().subarray(64).equals(answer)).toBe(true);
  });

  it('lets the server end first and still takes what the client sends', async () => {
    let take: (text: string) => void = () => {};
    const got = new Promise<string>((resolve) => {
      take = resolve;
    });
    const port = await serve((socket) => {
      let text = '';
      socket.end('only this');
      socket.on('data', (bytes) => {
        text += bytes;
      });
      socket.on('end', () => take(text));
    });
    const { socket, ended } = raw(port, '', { staysOpen: true });
    expect(String((await ended).bytes)).toBe(`${HEAD}only this`);
    socket.end('late');
    expect(await got).toBe('late');
  });

  it('is refused before it is there: port, environment, nothing that listens', async () => {
    const refusal = async (exchange: ReturnType<typeof rawExchange>) => {
      const text = String((await exchange.ended).bytes);
      return { status: Number(text.split(' ')[1]), ...JSON.parse(text.split('\r\n\r\n')[1] ?? '').error };
    };
    const port = await serve(() => {});
    servers.splice(0)[0]?.close();
    expect(await refusal(raw(port))).toMatchObject({
      status: 502,
      code: 'unavailable',
      details: { reason: 'connection_refused' },
    });
    for (const wrong of ['0', '65536', '80x', '-1'])
      expect(await refusal(raw(wrong))).toMatchObject({ status: 400, details: { field: 'port' } });
    const head = upgradeHead('/v1/environments/none/ports/80/connect', 'fuse-tunnel/1', authorization);
    expect(await refusal(rawExchange(scene.orchestrator.url, head))).toMatchObject({ status: 404 });
    expect((await scene.call('GET', path(80))).status).toBe(400);
  });

  it('is reset when its server is, and resets its server when the client is cut', async () => {
    const reset = await serve((socket) => {
      socket.once('data', () => socket.resetAndDestroy());
    });
    const client = raw(reset);
    await client.until((text) => text === HEAD);
    client.socket.write('go');
    expect((await client.ended).reset).toBe(true);
    const { ws, closed } = await webSocket(reset);
    ws.send(Buffer.from('go'));
    expect(await closed).toBe(1011);
    const gone = new Promise<void>((resolve) => {
      void serve((socket) => socket.on('error', () => {}).on('close', () => resolve())).then(async (port) => {
        const cut = raw(port);
        await cut.until((text) => text === HEAD);
        cut.socket.resetAndDestroy();
      });
    });
    await gone;
  });

  it('holds back a server whose client takes nothing', async () => {
    let written = 0;
    const port = await serve((socket) => {
      const chunk = Buffer.alloc(1_048_576);
      const more = () => {
        written += chunk.length;
        if (!socket.destroyed) socket.write(chunk, more);
      };
      more();
    });
    const { socket, until } = raw(port);
    await until((text) => text.startsWith(HEAD));
    socket.pause();
    for (let before = -1; before !== written; ) {
      before = written;
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
    expect(written).toBeLessThan(64 * 1_048_576);
    socket.destroy();
  });
});

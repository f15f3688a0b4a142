import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { ClientGone } from './closing.ts';
import { WebSocketPeer } from './websocket-peer.ts';

const PING_MS = 40;

let server: WebSocketServer;
let clients: WebSocket[];
beforeEach(async () => {
  clients = [];
  server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  await once(server, 'listening');
});
afterEach(async () => {
  for (const client of clients) client.terminate();
  await new Promise((resolve) => server.close(resolve));
});

async function pair(options: { autoPong: boolean }) {
  const client = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`, options);
  clients.push(client);
  client.on('error', () => {});
  const [[ws]] = (await Promise.all([once(server, 'connection'), once(client, 'open')])) as unknown as [[WebSocket]];
  return { client, ws, peer: new WebSocketPeer(ws, { halfCloses: false, pingMs: PING_MS }) };
}

describe('the pings of a WebSocket', () => {
  it('drop a client of which nothing is heard', async () => {
    const { peer } = await pair({ autoPong: false });
    const all = (async () => {
      for await (const _ of peer.received()) throw new Error('nothing was sent');
    })();
    await expect(all).rejects.toBeInstanceOf(ClientGone);
  });

  it('leave one alone that answers, that sends, or that takes what it is sent', async () => {
    const answering = await pair({ autoPong: true });
    const sending = await pair({ autoPong: false });
    const taking = await pair({ autoPong: false });
    const drain = async (peer: WebSocketPeer) => {
      for await (const _ of peer.received());
    };
    for (const { peer } of [answering, sending, taking]) void drain(peer).catch(() => {});
    const beat = setInterval(() => {
      sending.client.send(Buffer.from('x'));
      void taking.peer.send(Buffer.from('y')).catch(() => {});
    }, PING_MS / 2);
    let pings = 0;
    await new Promise<void>((resolve) =>
      answering.client.on('ping', () => {
        pings += 1;
        if (pings === 8) resolve();
      }),
    );
    clearInterval(beat);
    for (const { ws } of [answering, sending, taking]) expect(ws.readyState).toBe(WebSocket.OPEN);
  });

  it('leave one alone that is not read here', async () => {
    const { client, ws, peer } = await pair({ autoPong: true });
    client.send(Buffer.alloc(10));
    client.send(Buffer.alloc(10));
    client.send(Buffer.alloc(10));
    const pieces = peer.received()[Symbol.asyncIterator]();
    await pieces.next();
    await expect.poll(() => ws.isPaused).toBe(true);
    for (let pings = 0; pings < 6; pings += 1) await new Promise((resolve) => setTimeout(resolve, PING_MS));
    expect(ws.readyState).toBe(WebSocket.OPEN);
    expect((await pieces.next()).value).toHaveLength(10);
    expect((await pieces.next()).value).toHaveLength(10);
  });
});

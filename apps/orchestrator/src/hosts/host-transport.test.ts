import { randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { PassThrough, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { HostTransport, isHostUnreachable } from './host-transport.ts';

let server: Server | undefined;
const open: Socket[] = [];
afterEach(async () => {
  for (const socket of open.splice(0)) socket.destroy();
  await new Promise((resolve) => (server === undefined ? resolve(undefined) : server.close(resolve)));
  server = undefined;
});

interface Answers {
  onRequest?: (request: IncomingMessage, response: ServerResponse) => void;
  onUpgrade?: (request: IncomingMessage, socket: Socket) => void;
}

async function host({ onRequest, onUpgrade }: Answers): Promise<HostTransport> {
  server = createServer((request, response) => onRequest?.(request, response));
  server.on('connection', (socket) => open.push(socket));
  if (onUpgrade !== undefined) server.on('upgrade', (request, socket) => onUpgrade(request, socket as Socket)); // it listens on a port
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return new HostTransport({ id: 'h', url: `http://127.0.0.1:${port}/base`, token: 'secret' });
}

const put = { method: 'PUT', path: '/v1/x', timeoutMs: 500 } as const;
const connect = { method: 'GET', path: '/v1/y', timeoutMs: 5_000 } as const;
const envelope = JSON.stringify({ error: { code: 'conflict', message: 'exists', details: { reason: 'exists' } } });

describe('a body that is sent as it comes', () => {
  it('arrives whole; while it is being sent no deadline counts', async () => {
    const transport = await host({
      onRequest: async (request, response) => {
        let size = 0;
        for await (const chunk of request) size += chunk.length;
        response.end(JSON.stringify({ size, url: request.url, authorization: request.headers.authorization }));
      },
    });
    const body = new PassThrough();
    const answer = transport.json(
      { ...put, body },
      z.object({ size: z.number(), url: z.string(), authorization: z.string() }),
    );
    body.write(randomBytes(70_000));
    setTimeout(() => body.end(randomBytes(5)), 800);
    expect(await answer).toEqual({ size: 70_005, url: '/base/v1/x', authorization: 'Bearer secret' });
  });

  it('is late when the answer does not come after its end', async () => {
    const transport = await host({ onRequest: (request) => request.resume() });
    const error = await transport.nothing({ ...put, body: Readable.from([Buffer.from('x')]) }).catch((e: unknown) => e);
    expect(isHostUnreachable(error)).toBe(true);
  });

  it('is refused before its end with the agent’s own words, and is left undestroyed', async () => {
    const transport = await host({
      onRequest: (_request, response) => response.writeHead(409).end(envelope),
    });
    const body = new PassThrough();
    body.write('more will never come');
    await expect(transport.nothing({ ...put, body })).rejects.toMatchObject({
      code: 'conflict',
      details: { reason: 'exists' },
    });
    expect(body.destroyed).toBe(false);
    body.write(Buffer.alloc(1_000_000));
    expect(body.destroyed).toBe(false);
  });

  it('that fails cuts the request: the host never takes a part for the whole', async () => {
    const cut = new Promise<boolean>((resolve) => {
      void host({
        onRequest: (request) => request.resume().once('close', () => resolve(!request.complete)),
      }).then(async (transport) => {
        const body = new PassThrough();
        body.write('a part');
        const answer = transport.nothing({ ...put, body });
        setTimeout(() => body.destroy(), 50);
        await expect(answer).rejects.toMatchObject({ code: 'invalid_argument' });
      });
    });
    expect(await cut).toBe(true);
  });

  it('waits for a host that takes nothing: memory is bounded', async () => {
    const transport = await host({ onRequest: (request) => request.pause() });
    let made = 0;
    const body = new Readable({
      read() {
        made += 65_536;
        this.push(Buffer.alloc(65_536));
      },
    });
    const stop = new AbortController();
    const answer = transport.nothing({ ...put, body, signal: stop.signal });
    answer.catch(() => {});
    let before = -1;
    while (before !== made) {
      before = made;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    expect(made).toBeLessThan(64 * 1_048_576);
    stop.abort(new Error('enough'));
    await expect(answer).rejects.toThrow('enough');
  });
});

describe('an upgrade', () => {
  it('gives a socket that can be half closed both ways', async () => {
    const transport = await host({
      onUpgrade: async (request, socket) => {
        socket.write(
          `HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: ${request.headers.upgrade}\r\n\r\nhello `,
        );
        const got = await text(socket.iterator({ destroyOnReturn: false }));
        socket.end(got.toUpperCase());
      },
    });
    const { socket, head } = await transport.upgrade(connect, 'fuse-tunnel/1');
    socket.unshift(head);
    socket.end('bye');
    expect(await text(socket)).toBe('hello BYE');
  });

  it('that is refused says why', async () => {
    const transport = await host({ onRequest: (_request, response) => response.writeHead(409).end(envelope) });
    await expect(transport.upgrade(connect, 'fuse-tunnel/1')).rejects.toMatchObject({ code: 'conflict', status: 409 });
  });

  it('that is answered like any request is not taken for one', async () => {
    const transport = await host({ onRequest: (_request, response) => response.end('{}') });
    await expect(transport.upgrade(connect, 'fuse-tunnel/1')).rejects.toMatchObject({ code: 'internal' });
  });

  it('ends with its signal', async () => {
    const transport = await host({
      onUpgrade: (_request, socket) =>
        socket.write('HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: x\r\n\r\n'),
    });
    const stop = new AbortController();
    const { socket } = await transport.upgrade({ ...connect, signal: stop.signal }, 'x');
    const closed = new Promise((resolve) => socket.once('close', resolve));
    stop.abort(new Error('enough'));
    await closed;
  });

  it('of a host that is not there is unavailable', async () => {
    const transport = new HostTransport({ id: 'h', url: 'http://127.0.0.1:1', token: null });
    expect(isHostUnreachable(await transport.upgrade(connect, 'x').catch((e: unknown) => e))).toBe(true);
  });
});

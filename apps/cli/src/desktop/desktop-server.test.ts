/** The page's server: who is let in, and what goes through it. The display is a pair of streams in this process. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { request } from 'node:http';
import type { ByteConnection } from '@fuse/sdk';
import { afterEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { AnsweringServer, fuse } from '../test-fuse.ts';
import { isAllowedHost } from './allowed-host.ts';
import { DesktopServer } from './desktop-server.ts';

/** What is written to it comes back. */
function echo(): ByteConnection & { closed: boolean } {
  let controller: TransformStreamDefaultController<Uint8Array> | undefined;
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>({
    start: (its) => {
      controller = its;
    },
  });
  const connection = {
    ...{ readable, writable, closed: false },
    close: () => {
      connection.closed = true;
      controller?.terminate();
    },
  };
  return connection;
}

let desktop: DesktopServer | undefined;
const errors: unknown[] = [];
async function start(open: (signal: AbortSignal) => Promise<ByteConnection>): Promise<DesktopServer> {
  errors.length = 0;
  desktop = await DesktopServer.start({
    environmentId: 'fuse-<a>',
    viewOnly: false,
    listen: { host: '127.0.0.1', port: 0 },
    open,
    onError: (error) => errors.push(error),
    reasonOf: (error) => (error instanceof Error ? error.message : String(error)),
  });
  return desktop;
}
afterEach(() => desktop?.close());

function get(url: string, headers: Record<string, string> = {}, method = 'GET') {
  return new Promise<{ status: number; headers: NodeJS.Dict<string | string[]>; body: string }>((resolve, reject) => {
    request(url, { headers, method }, async (response) => {
      let body = '';
      for await (const chunk of response) body += chunk;
      resolve({ status: response.statusCode ?? 0, headers: response.headers, body });
    })
      .on('error', reject)
      .end();
  });
}

function socketOf(url: string, headers: Record<string, string> = { origin: new URL(url).origin }) {
  const socket = new WebSocket(new URL('stream', url.replace('http', 'ws')), { headers });
  const opened = once(socket, 'open');
  const closed = new Promise<{ code: number; reason: string }>((resolve) => {
    socket.once('close', (code, reason) => resolve({ code, reason: String(reason) }));
  });
  socket.on('error', () => {}); // told by `opened`
  opened.catch(() => {});
  return { socket, opened, closed };
}

describe('the page of a display', () => {
  it('is below its token alone, with the modules that it needs', async () => {
    const { url } = await start(async () => echo());
    const page = await get(url);
    expect(page).toMatchObject({
      status: 200,
      headers: { 'referrer-policy': 'no-referrer', 'cache-control': 'no-store' },
    });
    expect(page.headers['content-security-policy']).toContain("default-src 'none'");
    expect(page.body).toContain('<title>fuse-&lt;a&gt;: desktop</title>');
    expect(await get(`${url}novnc/core/rfb.js`)).toMatchObject({
      status: 200,
      headers: { 'content-type': 'text/javascript; charset=utf-8' },
    });
    const { origin, pathname } = new URL(url);
    const other = pathname.startsWith('/A') ? pathname.replace('A', 'B') : pathname.replace(/^\/./, '/A');
    const wrong = [
      '/',
      '/x/',
      other,
      `${pathname.slice(0, -2)}/`,
      pathname.slice(0, -1),
      `${pathname}novnc/package.json`,
    ];
    for (const path of [
      ...wrong,
      `${pathname}novnc/core/..%2fcore/rfb.js`,
      `${pathname}novnc/core/none.js`,
      `${pathname}stream`,
    ])
      expect((await get(origin + path)).status, path).toBe(404);
    expect((await get(url, {}, 'POST')).status).toBe(405);
  });

  it('is opened once by the address that a browser is started with', async () => {
    const { url, firstUrl } = await start(async () => echo());
    expect(firstUrl).not.toBe(url);
    expect((await get(`${firstUrl}novnc/core/rfb.js`)).status).toBe(404);
    expect(await get(firstUrl)).toMatchObject({ status: 303, headers: { location: new URL(url).pathname } });
    expect((await get(firstUrl)).status).toBe(404);
  });

  it('is for the names of this machine, and for no other site', async () => {
    const { url } = await start(async () => echo());
    const { host, origin } = new URL(url);
    expect((await get(url, { host: 'localhost:9' })).status).toBe(200);
    expect((await get(url, { host: 'evil.test' })).status).toBe(404);
    expect((await get(url, { host: `evil.test:${new URL(url).port}` })).status).toBe(404);
    expect((await get(url, { origin: 'http://evil.test' })).status).toBe(404);
    const refused: Record<string, string>[] = [
      {},
      { origin: 'http://evil.test' },
      { origin: 'null' },
      { origin: origin.replace('127.0.0.1', 'localhost') },
      { origin: 'http://evil.test', host: 'evil.test' },
    ];
    for (const headers of refused)
      await expect(socketOf(url, headers).opened, JSON.stringify(headers)).rejects.toThrow('404');
    await expect(socketOf(`${origin}/x/`).opened).rejects.toThrow('404');
    const { socket, opened, closed } = socketOf(url, { origin: 'http://localhost:9', host: 'localhost:9' });
    await opened;
    socket.close();
    await closed;
    expect(isAllowedHost(host, ['127.0.0.1'])).toBe(true);
    expect(isAllowedHost('[::1]:80', ['127.0.0.1'])).toBe(true);
    expect(isAllowedHost('10.0.0.7:80', ['127.0.0.1'])).toBe(false);
    expect(isAllowedHost('10.0.0.7:80', ['0.0.0.0'])).toBe(true);
    expect(isAllowedHost('[fd00::7]:80', ['::'])).toBe(true);
    expect(isAllowedHost('evil.test', ['0.0.0.0'])).toBe(false);
    for (const wrong of [undefined, '', 'localhost@evil.test', 'localhost:x', '[::1'])
      expect(isAllowedHost(wrong, ['127.0.0.1'])).toBe(false);
  });

  it('carries every byte both ways, and leaves the display when it is left', async () => {
    const display = echo();
    const { url } = await start(async () => display);
    const { socket, opened } = socketOf(url);
    const sent = randomBytes(3_000_000);
    const back: Buffer[] = [];
    const all = new Promise<void>((resolve) => {
      socket.on('message', (chunk: Buffer) => {
        back.push(chunk);
        if (Buffer.concat(back).length === sent.length) resolve();
      });
    });
    await opened;
    for (let at = 0; at < sent.length; at += 100_000) socket.send(sent.subarray(at, at + 100_000));
    await all;
    expect(Buffer.concat(back).equals(sent)).toBe(true);
    socket.close();
    await expect.poll(() => display.closed).toBe(true);
    expect(errors).toEqual([]);
  });

  it('is left in the middle of a picture without an error, and ended by its display', async () => {
    let ends = false;
    const left: boolean[] = [];
    const { url } = await start(async () => {
      let over = false;
      const pull = (controller: ReadableStreamDefaultController<Uint8Array>) => {
        if (over || ends) controller.close();
        else controller.enqueue(new Uint8Array(100_000));
      };
      const close = () => {
        over = true;
        left.push(true);
      };
      return { readable: new ReadableStream({ pull }, { highWaterMark: 0 }), writable: new WritableStream(), close };
    });
    for (let time = 0; time < 5; time += 1) {
      const { socket, closed } = socketOf(url);
      await once(socket, 'message');
      socket.close();
      await closed;
    }
    await expect.poll(() => left.length).toBeGreaterThanOrEqual(5);
    ends = true;
    expect(await socketOf(url).closed).toEqual({ code: 1005, reason: '' });
    expect(errors).toEqual([]);
  });

  it('says why there is no display, and when it is stopped', async () => {
    const failure = new Error('the display is not up: '.padEnd(200, 'é'));
    const { url } = await start(() => Promise.reject(failure));
    const { code, reason } = await socketOf(url).closed;
    expect(code).toBe(4000);
    expect(reason).toMatch(/^the display is not up: é+…$/);
    expect(errors).toEqual([failure]);
    await desktop?.close();

    const display = echo();
    const again = await start(async () => display);
    const { opened, closed } = socketOf(again.url);
    await opened;
    await again.close();
    expect(await closed).toMatchObject({ code: 1001 });
    expect(display.closed).toBe(true);
    await expect(get(again.url)).rejects.toThrow('ECONNREFUSED');
  });
});

describe('fuse desktop', () => {
  it('looks at the display first', async () => {
    await using server = await AnsweringServer.start();
    const line = 'GET /v1/environments/fuse-a/computer';
    const down = { up: false, width: 0, height: 0 };
    const desktopOf = () => fuse(['desktop', 'fuse-a'], { FUSE_URL: server.url, FUSE_TOKEN: 't' });
    for (const [answer, said] of [
      [
        { body: { ...down, error: 'the display of vm fuse-a is not up: it has none' } },
        /^unavailable: the display of vm fuse-a is not up: it has none\nhint: /,
      ],
      [
        { body: { ...down, error: 'no X server' } },
        /^unavailable: the display of fuse-a is not up: no X server\nhint: /,
      ],
      [{ body: down }, /^unavailable: the display of fuse-a is not up\nhint: /],
      [
        { status: 404, body: { error: { code: 'not_found', message: 'vm fuse-a not found' } } },
        /^not found: vm fuse-a not found\n/,
      ],
    ] as const) {
      server.answers = { [line]: answer };
      expect(await desktopOf()).toEqual({ code: 1, stdout: '', stderr: expect.stringMatching(said) });
    }
    expect(new Set(server.lines)).toEqual(new Set([line]));
  });
});

/** The upgrade of a display: bytes as they are, both ways, each direction to its own end. */
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { expect, it } from 'vitest';
import { FuseClient, type FuseClientOptions } from './client.ts';
import { FuseApiError, FuseConnectionError, FuseError, isUnavailable } from './errors.ts';
import { nodeWebSockets } from './node/index.ts';

const GREETING = 'RFB 003.008\n';
const SWITCHED = 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: fuse-vnc/1\r\nConnection: Upgrade\r\n\r\n';

async function display(answer: (socket: Socket, request: IncomingMessage) => void) {
  const server = createServer((_, response) => response.writeHead(200).end('no upgrade here'));
  const sockets = new Set<Socket>();
  server.on('connection', (socket) => sockets.add(socket));
  server.on('upgrade', (request, socket: Socket) => {
    socket.on('error', () => {}); // those that the client cuts
    answer(socket, request);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo; // it listens on TCP
  const connect = (options: Partial<FuseClientOptions> = {}) =>
    new FuseClient({
      baseUrl: `http://127.0.0.1:${port}`,
      token: 'secret',
      tenant: 'acme',
      random: () => 0,
      webSockets: nodeWebSockets(),
      ...options,
    }).environments;
  const dispose = async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  };
  return { sockets, connect, [Symbol.asyncDispose]: dispose };
}

const failureOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => Promise.reject(new Error('it did not fail')),
    (error: unknown) => error,
  );

const bytes = (text: string) => new TextEncoder().encode(text);

it('greets, carries every byte both ways, and each direction ends by itself', async () => {
  const sent = randomBytes(3_000_000);
  const digest = createHash('sha256');
  let asked: IncomingMessage | undefined;
  await using server = await display((socket, request) => {
    asked = request;
    socket.write(SWITCHED + GREETING);
    socket.on('data', (chunk) => digest.update(chunk));
    // All was heard; what it says now comes after the client's end.
    socket.once('end', () => socket.end(sent));
  });
  const stream = await server.connect().computerStream('a/b');
  const reader = stream.readable.getReader();
  let heard = '';
  while (heard.length < GREETING.length) heard += Buffer.from((await reader.read()).value ?? []).toString();
  expect(heard).toBe(GREETING);
  const writer = stream.writable.getWriter();
  for (let at = 0; at < sent.length; at += 70_000) await writer.write(sent.subarray(at, at + 70_000));
  await writer.close();
  const back: Uint8Array[] = [];
  for (let next = await reader.read(); !next.done; next = await reader.read()) back.push(next.value);
  expect(Buffer.concat(back).equals(sent)).toBe(true);
  expect(digest.digest('hex')).toBe(createHash('sha256').update(sent).digest('hex'));
  expect(asked?.url).toBe('/v1/environments/a%2Fb/computer/stream');
  expect(asked?.headers).toMatchObject({
    upgrade: 'fuse-vnc/1',
    authorization: 'Bearer secret',
    'fuse-tenant': 'acme',
  });
});

it('still hears the client when it has ended itself', async () => {
  const heard: Buffer[] = [];
  await using server = await display((socket) => {
    socket.end(SWITCHED + GREETING);
    socket.on('data', (chunk) => heard.push(chunk));
  });
  const stream = await server.connect().computerStream('e');
  const said: Uint8Array[] = [];
  for await (const chunk of stream.readable) said.push(chunk);
  expect(Buffer.concat(said).toString()).toBe(GREETING);
  const writer = stream.writable.getWriter();
  await writer.write(bytes('late'));
  await writer.close();
  await expect.poll(() => Buffer.concat(heard).toString()).toBe('late');
});

it('is refused with the error of the server', async () => {
  const error = {
    code: 'unavailable',
    message: 'the display of vm e is not up',
    details: { reason: 'no_display' },
    hint: 'Wait.',
  };
  const body = JSON.stringify({ error });
  await using server = await display((socket) =>
    socket.end(
      `HTTP/1.1 503 Service Unavailable\r\nX-Request-ID: req_7\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`,
    ),
  );
  const refused = await failureOf(server.connect().computerStream('e'));
  expect(refused).toBeInstanceOf(FuseApiError);
  expect(refused).toMatchObject({
    status: 503,
    code: 'unavailable',
    reason: error.message,
    hint: 'Wait.',
    requestId: 'req_7',
  });
  expect(isUnavailable(refused)).toBe(true);
});

it('is no display where the server does not switch, cuts, or cannot be reached', async () => {
  const answers = [
    'HTTP/1.1 101 Switching Protocols\r\nUpgrade: other/1\r\nConnection: Upgrade\r\n\r\n',
    'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 500 Oops\r\nContent-Length: 50\r\n\r\nhalf',
  ];
  await using server = await display((socket) => socket.end(answers.shift() ?? ''));
  const environments = server.connect({ retries: 0 });
  const didNot = expect.stringContaining('did not switch to fuse-vnc/1');
  for (const expected of [{ message: didNot }, { message: didNot }, { sent: true }, { sent: true }]) {
    const failed = await failureOf(environments.computerStream('e'));
    expect(failed).toBeInstanceOf(FuseError);
    expect(failed).toMatchObject(expected);
  }
  const nobody = await failureOf(server.connect({ baseUrl: 'http://127.0.0.1:1', retries: 0 }).computerStream('e'));
  expect(nobody).toBeInstanceOf(FuseConnectionError);
  expect(nobody).toMatchObject({ sent: false });
  const browser = await failureOf(
    server.connect({ webSockets: { carriesHeaders: false, open: nodeWebSockets().open } }).computerStream('e'),
  );
  expect(browser).toMatchObject({ name: 'FuseError', message: expect.stringContaining('nodeWebSockets()') });
});

it('is given up at once when it is aborted: before, during and after the upgrade', async () => {
  let switches = false;
  await using server = await display((socket) => {
    if (switches) socket.write(SWITCHED + GREETING);
  });
  const environments = server.connect();
  const reason = new Error('enough');
  expect(await failureOf(environments.computerStream('e', { signal: AbortSignal.abort(reason) }))).toBe(reason);

  const waiting = new AbortController();
  const opening = failureOf(environments.computerStream('e', { signal: waiting.signal }));
  await expect.poll(() => server.sockets.size).toBe(1);
  waiting.abort(reason);
  expect(await opening).toBe(reason);

  switches = true;
  const running = new AbortController();
  const stream = await environments.computerStream('e', { signal: running.signal });
  const reader = stream.readable.getReader();
  await reader.read();
  const reading = failureOf(reader.read());
  running.abort(reason);
  expect(await reading).toBe(reason);
  expect(await failureOf(stream.writable.getWriter().write(bytes('x')))).toBe(reason);
});

it('ends cleanly for who closes it, and with an error for who is cut', async () => {
  await using server = await display((socket) => socket.write(SWITCHED));
  const environments = server.connect();
  const closed = await environments.computerStream('e');
  const reading = closed.readable.getReader().read();
  closed.close();
  expect(await reading).toMatchObject({ done: true });

  const cut = await environments.computerStream('e');
  const failing = failureOf(cut.readable.getReader().read());
  for (const socket of server.sockets) socket.resetAndDestroy();
  expect(await failing).toBeInstanceOf(FuseConnectionError);
});

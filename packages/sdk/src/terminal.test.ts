import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { FuseClient, type FuseClientOptions } from './client.ts';
import { FuseApiError, FuseError } from './errors.ts';
import { forwardPort, nodeWebSockets } from './node/index.ts';
import { type InsideScript, type TestExec, TestInside } from './test-inside.ts';

async function inside(script: Partial<InsideScript> = {}, options: Partial<FuseClientOptions> = {}) {
  const server = await TestInside.start(script);
  const client = new FuseClient({
    baseUrl: server.url,
    token: 'secret',
    random: () => 0.01,
    webSockets: nodeWebSockets(),
    ...options,
  });
  return { server, client, environments: client.environments };
}

async function bytesOf(stream: ReadableStream<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

const bytes = (text: string) => new TextEncoder().encode(text);

/** What is typed comes back; `exit` ends it. */
const shell = (exec: TestExec) => {
  const text = exec.stdin.toString();
  exec.write('stdout', bytes(`> ${text}`));
  if (text.endsWith('exit')) exec.end({ exit_code: 5 });
};

/** The platform's WebSocket, where it has one. */
const withGlobalWebSocket = async (work: () => Promise<void>) => {
  const before = Object.getOwnPropertyDescriptor(globalThis, 'WebSocket');
  Object.defineProperty(globalThis, 'WebSocket', { value: WebSocket, configurable: true, writable: true });
  try {
    await work();
  } finally {
    if (before === undefined) Reflect.deleteProperty(globalThis, 'WebSocket');
    else Object.defineProperty(globalThis, 'WebSocket', before);
  }
};

describe('a terminal', () => {
  it('types, resizes, and ends with the exit of its session', async () => {
    const { server, environments } = await inside({ onStdin: shell });
    await using _ = server;
    const terminal = await environments.attach('e', { rows: 30, cols: 100, session: 's', cmd: ['sh', '-l'] });
    await terminal.resize(40, 120);
    await terminal.write('exit');
    expect((await bytesOf(terminal.output)).toString()).toBe('> exit');
    expect(await terminal.exit).toMatchObject({ exit_code: 5 });
    expect(server.sizes).toEqual([
      { rows: 30, cols: 100 },
      { rows: 40, cols: 120 },
    ]);
    expect(server.seen).toEqual([
      'UPGRADE /v1/environments/e/attach?tty=1&rows=30&cols=100&cmd=sh&cmd=-l&session=s&scrollback=262144 Bearer secret',
    ]);
  });

  it('comes back to its session without gap or repeat, at its size, whenever it is cut', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.uint8Array({ minLength: 1, maxLength: 2_000 }), fc.boolean()), {
          minLength: 1,
          maxLength: 20,
        }),
        async (output) => {
          const { server, environments } = await inside();
          await using _ = server;
          const states: string[] = [];
          const terminal = await environments.attach('e', { onConnection: (state) => states.push(state) });
          await terminal.resize(50, 60);
          const exec = server.exec(terminal.session);
          const reading = bytesOf(terminal.output);
          for (const [piece, cut] of output) {
            exec.write('stdout', piece);
            await new Promise((resolve) => setImmediate(resolve));
            if (cut) server.cutAll();
          }
          exec.end({ exit_code: 1 });
          expect(Buffer.compare(await reading, Buffer.concat(output.map(([piece]) => piece)))).toBe(0);
          expect((await terminal.exit).exit_code).toBe(1);
          if (states.includes('restored')) expect(server.sizes.at(-1)).toEqual({ rows: 50, cols: 60 });
        },
      ),
      { numRuns: 20 },
    );
  });

  it('waits with what is typed while it has no connection', async () => {
    const { server, environments } = await inside({ onStdin: shell });
    await using _ = server;
    let lost = () => {};
    const gone = new Promise<void>((resolve) => {
      lost = resolve;
    });
    const terminal = await environments.attach('e', {
      onConnection: (state) => {
        if (state === 'lost') lost();
      },
    });
    const reading = bytesOf(terminal.output);
    server.cutAll();
    await gone;
    await terminal.write('exit');
    expect((await reading).toString()).toBe('> exit');
  });

  it('leaves its session when it is closed', async () => {
    const { server, environments } = await inside();
    await using _ = server;
    const terminal = await environments.attach('e');
    const reading = bytesOf(terminal.output);
    await terminal.close();
    expect(await reading).toHaveLength(0);
    await expect(terminal.exit).rejects.toBeInstanceOf(FuseError);
    await expect(terminal.write('x')).rejects.toBeInstanceOf(FuseError);
    expect(server.exec(terminal.session).isOver).toBe(false);
  });

  it('ends with the reason of its signal', async () => {
    const { server, environments } = await inside();
    await using _ = server;
    const stop = new AbortController();
    const terminal = await environments.attach('e', { signal: stop.signal });
    const reading = bytesOf(terminal.output);
    reading.catch(() => {});
    const reason = new Error('enough');
    stop.abort(reason);
    await expect(reading).rejects.toBe(reason);
    await expect(terminal.exit).rejects.toBe(reason);
  });

  it('fails when its VM is lost, and when it is refused', async () => {
    const { server, environments } = await inside();
    await using _ = server;
    const terminal = await environments.attach('e');
    server.exec(terminal.session).lose('the VM died');
    await expect(bytesOf(terminal.output)).rejects.toMatchObject({ code: 'vm_lost' });
    const stranger = new FuseClient({ baseUrl: server.url, webSockets: nodeWebSockets(), random: () => 0 });
    const error = await stranger.environments.attach('e').catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(FuseApiError);
    expect(error).toMatchObject({ status: 401, code: 'unauthorized' });
  });

  it('takes a ticket for each connection where headers cannot be sent', async () => {
    await withGlobalWebSocket(async () => {
      const { server, environments } = await inside({ onStdin: shell }, { webSockets: undefined });
      await using _ = server;
      const terminal = await environments.attach('e', { session: 's' });
      const reading = bytesOf(terminal.output);
      await terminal.write('hello');
      await expect.poll(() => server.exec('s').log.length).toBeGreaterThan(0);
      server.cutAll();
      await expect.poll(() => server.seen.filter((each) => each.startsWith('UPGRADE')).length).toBe(2);
      await terminal.write('exit');
      expect((await reading).toString()).toBe('> hello> helloexit');
      expect(server.seen.filter((each) => each.startsWith('POST'))).toHaveLength(2);
      expect(server.seen.find((each) => each.startsWith('UPGRADE'))).toMatch(/ticket=ticket-0 $/);
    });
  });
});

describe('a forwarded port', () => {
  /** Answers with what it got, once that has ended. */
  const echo = async () => {
    const server = createServer({ allowHalfOpen: true }, (socket: Socket) => {
      socket.on('error', () => {});
      socket.pipe(socket);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return server;
  };
  const portOf = (server: ReturnType<typeof createServer>) => (server.address() as { port: number }).port;

  it('carries bytes both ways with half-close, from many connections at once', async () => {
    const guest = await echo();
    const { server, client } = await inside({ tunnelPort: portOf(guest) });
    await using _ = server;
    await using forwarded = await forwardPort(client, 'e', { remotePort: 80 });
    await Promise.all(
      Array.from({ length: 8 }, async (_each, i) => {
        const sent = new Uint8Array(1_500_000).map((__, at) => at * 7 + i);
        const socket = connect({ port: forwarded.localPort, host: forwarded.host, allowHalfOpen: true });
        socket.end(sent);
        expect(Buffer.compare(await bytesOf(socket as unknown as ReadableStream<Uint8Array>), sent)).toBe(0);
      }),
    );
    guest.close();
  });

  it('resets what it cannot reach, and goes on', async () => {
    const { server, client } = await inside({ tunnelPort: 1 });
    await using _ = server;
    const errors: unknown[] = [];
    await using forwarded = await forwardPort(client, 'e', { remotePort: 80, onError: (error) => errors.push(error) });
    for (let i = 0; i < 2; i++) {
      const socket = connect(forwarded.localPort, forwarded.host);
      socket.on('error', () => {});
      socket.write('x');
      await new Promise((resolve) => socket.on('close', resolve));
    }
    expect(errors).toHaveLength(2);
  });

  it('ends its connections when it is closed', async () => {
    const guest = await echo();
    const { server, client } = await inside({ tunnelPort: portOf(guest) });
    await using _ = server;
    const forwarded = await forwardPort(client, 'e', { remotePort: 80 });
    const socket = connect(forwarded.localPort, forwarded.host);
    socket.on('error', () => {});
    socket.write('x');
    await once(socket, 'data');
    const closed = once(socket, 'close');
    await forwarded.close();
    await closed;
    guest.close();
    await expect.poll(() => server.sockets.size).toBe(0);
  });
});

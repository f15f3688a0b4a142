/** Connections to an exec of a scripted guest, whose command repeats its stdin. */
import { mkdtemp, rm } from 'node:fs/promises';
import type { ServerHttp2Stream } from 'node:http2';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  AppError,
  encodeFrame,
  type Frame,
  FrameError,
  FrameParser,
  frameType,
  MAX_FRAME_PAYLOAD_BYTES,
} from '@fuse/contract';
import type { StartExec } from '@fuse/host-protocol';
import { openObjectStore } from '@fuse/object-store';
import { createLogger } from '@fuse/runtime';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { connectGuest } from '../guest/guest-client.ts';
import { HostileGuest } from '../guest/hostile-guest.ts';
import { connectExec } from './connect-exec.ts';
import type { Exec } from './exec.ts';
import { Execs } from './execs.ts';
import { exitFrame } from './test-frames.ts';

const log = createLogger({ name: 'test', level: 'silent' });

let directory: string;
let hostile: HostileGuest;
let server: Server;
let exec: Exec;
let heard: string[];
let ends: unknown[];
let dispose: () => Promise<void>;
let taken: number;
/** Random bytes may well say that stdin ends. */
let obeysEnd: boolean;
let output: ServerHttp2Stream | undefined;

function serve(stream: ServerHttp2Stream, path: string, method: string): void {
  const url = new URL(path, 'http://guest');
  const json = (body: unknown) => {
    stream.respond({ ':status': 200 });
    stream.end(JSON.stringify(body));
  };
  if (url.pathname === '/v1/execs/x' && method === 'POST') {
    stream.resume();
    stream.respond({ ':status': 200 });
    output = stream;
  } else if (url.pathname === '/v1/execs/x') {
    json({ id: 'x', pid: 2, running: true, stdin_bytes: taken, stdin_closed: false, offset_end: 0, offset_acked: 0 });
  } else if (url.pathname === '/v1/execs/x/stdin') {
    stream.on('data', (chunk: Buffer) => {
      taken += chunk.length;
      output?.write(encodeFrame(frameType.stdout, chunk));
    });
    stream.on('end', () => {
      const closed = obeysEnd && url.searchParams.get('end') === '1';
      json({ stdin_bytes: taken, closed });
      if (closed) output?.end(exitFrame);
    });
  } else {
    const chunks: Buffer[] = [];
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    stream.on('end', () => {
      heard.push(`${url.pathname} ${Buffer.concat(chunks)}`);
      stream.respond({ ':status': 204 });
      stream.end();
    });
  }
}

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'fuse-connect-'));
  heard = [];
  ends = [];
  taken = 0;
  obeysEnd = true;
  hostile = await HostileGuest.listen({ directory, onStream: serve });
  const guest = connectGuest(hostile.vmm, { log });
  const store = await openObjectStore({ kind: 'file', directory: join(directory, 'objects') });
  const execs = new Execs({
    directory: join(directory, 'execs'),
    vmEnv: {},
    host: { log, store, guest: () => guest, guestWhenRunning: async () => guest, condemn: () => {} },
    scope: () => undefined,
    onRunning: () => {},
  });
  const start: StartExec = { argv: ['cat'], timeout_ms: 0, max_log_bytes: 1_000_000, keep: 'ends', stdin_open: true };
  ({ exec } = await execs.start('x', start));
  server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => {});
    const gone = new AbortController();
    socket.once('close', () => gone.abort(new Error('the caller has gone')));
    void connectExec({
      ...{ exec, offset: 0, size: undefined, log, signal: gone.signal },
      asking: (work) => work(),
      accept: () => socket,
    })
      .then(() => ends.push('ended'))
      .catch((error: unknown) => ends.push(error))
      .finally(() => socket.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  dispose = async () => {
    await execs.detach();
    await guest[Symbol.asyncDispose]();
    await store[Symbol.asyncDispose]();
  };
});
afterEach(async () => {
  await dispose();
  await new Promise((resolve) => server.close(resolve));
  await hostile[Symbol.asyncDispose]();
  await rm(directory, { recursive: true });
});

/** Sends all of it; resolves with what came once the connection is over, or `enough` of it. */
async function exchange(pieces: Uint8Array[], enough: (frames: Frame[]) => boolean = () => false): Promise<Frame[]> {
  const socket: Socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  socket.on('error', () => {});
  const parser = new FrameParser();
  const frames: Frame[] = [];
  const over = new Promise<void>((resolve) => {
    socket.on('data', (chunk) => {
      frames.push(...parser.push(chunk as Buffer)); // no encoding is set
      if (enough(frames)) socket.destroy();
    });
    socket.on('close', () => resolve());
  });
  for (const piece of pieces) socket.write(piece);
  await over;
  return frames;
}

const textOf = (frames: Frame[]): string =>
  Buffer.concat(frames.filter(({ type }) => type === frameType.stdout).map(({ payload }) => payload)).toString(
    'latin1',
  );
const json = (type: number, value: unknown) => encodeFrame(type, Buffer.from(JSON.stringify(value)));

describe('a connection to an exec', () => {
  it('passes over what it does not know, and hears everything else in its order', async () => {
    const frames = await exchange([
      encodeFrame(99, Buffer.from('?')),
      encodeFrame(frameType.stdin, Buffer.from('one ')),
      encodeFrame(frameType.signal, Buffer.from('{"signal":')),
      json(frameType.signal, { signal: 'SIGNONE' }),
      json(frameType.signal, { signal: 'SIGHUP', tree: true }),
      encodeFrame(frameType.signal, Buffer.alloc(100_000, ' ')),
      json(frameType.resize, { rows: 1, cols: 1 }),
      encodeFrame(frameType.stdin, Buffer.alloc(0)),
      encodeFrame(frameType.stdin, Buffer.from('two')),
      encodeFrame(frameType.stdinEnd, Buffer.alloc(0)),
      encodeFrame(frameType.stdin, Buffer.from('nothing comes behind the end')),
    ]);
    expect(frames[0]?.type).toBe(frameType.open);
    expect(textOf(frames)).toBe('one two');
    expect(frames.at(-1)?.type).toBe(frameType.exit);
    expect(heard).toEqual(['/v1/execs/x/signal {"signal":"SIGHUP","tree":true}']);
  });

  it('survives whatever a client sends, and so does the command', async () => {
    obeysEnd = false;
    const hostileFrame = fc
      .record({ type: fc.nat(30), payload: fc.uint8Array({ maxLength: 60 }) })
      .map(({ type, payload }) => encodeFrame(type, payload));
    const pieces = fc.array(fc.oneof(fc.uint8Array({ maxLength: 40 }), hostileFrame), { maxLength: 12 });
    await fc.assert(
      fc.asyncProperty(pieces, async (sent) => {
        ends = [];
        // What is no frame in the end cuts it, whatever came before: the longest payload that may still be owed, and a bad header.
        await exchange([...sent, Buffer.alloc(MAX_FRAME_PAYLOAD_BYTES + 70, 0xff)]);
        await expect.poll(() => ends.length).toBe(1);
        const [end] = ends;
        expect(end instanceof FrameError || end instanceof AppError || end instanceof Error).toBe(true);
        expect(end).not.toBeInstanceOf(TypeError);
        expect(exec.running).toBe(true);
        expect(exec.followers.count).toBe(0);
      }),
      { numRuns: 100, endOnFailure: true },
    );
    const marker = '<still there>';
    const frames = await exchange([encodeFrame(frameType.stdin, Buffer.from(marker))], (seen) =>
      textOf(seen).includes(marker),
    );
    expect(textOf(frames)).toContain(marker);
  }, 60_000);
});

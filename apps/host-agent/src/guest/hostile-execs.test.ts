/** What a guest may answer about stdin and processes, and a channel that is cut anywhere while stdin is on its way. */
import { randomBytes } from 'node:crypto';
import type { ServerHttp2Stream } from 'node:http2';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { AppError } from '@fuse/contract';
import { createLogger } from '@fuse/runtime';
import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { feedFirstStdin, keepFirstStdin } from '../execs/first-stdin.ts';
import type { Guest } from './guest.ts';
import { connectGuest } from './guest-client.ts';
import { HostileGuest } from './hostile-guest.ts';

const log = createLogger({ name: 'test', level: 'silent' });
const never = new AbortController().signal;

let directory: TemporaryDirectory;
let hostile: HostileGuest;
let guest: Guest;
let onStream: (stream: ServerHttp2Stream, path: string) => void;

beforeEach(async () => {
  directory = await temporaryDirectory();
  hostile = await HostileGuest.listen({
    directory: directory.path,
    onStream: (stream, path) => onStream(stream, path),
  });
  guest = connectGuest(hostile.vmm, { log });
});
afterEach(async () => {
  await guest[Symbol.asyncDispose]();
  await hostile[Symbol.asyncDispose]();
  await directory[Symbol.asyncDispose]();
});

function answer(stream: ServerHttp2Stream, text: string, status = 200): void {
  stream.respond({ ':status': status });
  stream.end(text);
}

const conflict = (details: Record<string, string>) =>
  JSON.stringify({ error: { code: 'conflict', message: 'no', details } });

describe('stdin', () => {
  it('that the guest answers for early is stopped there', async () => {
    onStream = (stream) => answer(stream, conflict({ reason: 'stdin_closed' }), 409);
    let taken = 0;
    const endless = new Readable({
      read() {
        taken += 65_536;
        this.push(Buffer.alloc(65_536));
      },
    });
    await expect(guest.writeStdin('x', {}, endless)).rejects.toMatchObject({
      code: 'conflict',
      details: { reason: 'stdin_closed' },
    });
    expect(endless.destroyed).toBe(true);
    expect(taken).toBeLessThan(64 * 1024 ** 2);
  });

  it('whose source fails is a reset, and the source is to blame', async () => {
    const end = new Promise<number>((resolve) => {
      onStream = (stream) => {
        stream.resume();
        stream.once('close', () => resolve(stream.rstCode ?? 0));
      };
    });
    const source = new PassThrough();
    const written = guest.writeStdin('x', {}, source);
    source.write('half');
    setTimeout(() => source.destroy(new Error('the upload was cut')), 50);
    await expect(written).rejects.toThrow('the upload was cut');
    expect(await end).not.toBe(0);
  });

  it('ends with its caller although the guest never answers', async () => {
    onStream = () => {};
    const caller = new AbortController();
    const written = guest.writeStdin('x', {}, Readable.from([randomBytes(5_000_000)]), caller.signal);
    setTimeout(() => caller.abort(new Error('the caller has gone')), 50);
    await expect(written).rejects.toThrow('the caller has gone');
  });

  it('arrives exactly once although the channel is cut anywhere, again and again', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 0, max: 300_000 }),
        fc.array(fc.nat(120_000), { maxLength: 5 }),
        async (size, cuts) => {
          const bytes = randomBytes(size);
          const taken: Buffer[] = [];
          let count = 0;
          let ended = false;
          let cutAt = cuts[0] ?? Number.POSITIVE_INFINITY;
          let nextCut = 1;
          onStream = (stream, path) => {
            const url = new URL(path, 'http://guest');
            if (!url.pathname.endsWith('/stdin')) {
              const status = { id: 'x', pid: 1, running: true, offset_end: 0, offset_acked: 0 };
              return answer(stream, JSON.stringify({ ...status, stdin_bytes: count, stdin_closed: ended }));
            }
            let at = Number(url.searchParams.get('offset'));
            stream.on('data', (chunk: Buffer) => {
              const fresh = chunk.subarray(Math.max(0, count - at));
              at += chunk.length;
              taken.push(fresh);
              count += fresh.length;
              if (count < cutAt) return;
              cutAt = count + (cuts[nextCut++] ?? Number.POSITIVE_INFINITY);
              hostile.cut();
            });
            stream.on('end', () => {
              if (stream.destroyed) return;
              ended = url.searchParams.get('end') === '1';
              answer(stream, JSON.stringify({ stdin_bytes: count, closed: ended }));
            });
          };
          await keepFirstStdin(directory.path, bytes.toString('base64'));
          const first = { directory: directory.path, guestId: 'x', end: true, guest: async () => guest };
          await feedFirstStdin(first, never);
          expect(Buffer.concat(taken).equals(bytes)).toBe(true);
          expect(ended).toBe(true);
        },
      ),
      { numRuns: 5 },
    );
  }, 120_000);

  it('that another host agent has delivered is not missed', async () => {
    const first = { directory: join(directory.path, 'none'), guestId: 'x', end: true, guest: async () => guest };
    onStream = (stream) => stream.resume();
    await feedFirstStdin(first, never);
  });
});

describe('answers about execs and processes', () => {
  const calls = [
    () => guest.writeStdin('x', {}, Buffer.from('x')),
    () => guest.processes(),
    () => guest.signalExec('x', { signal: 'SIGTERM' }),
    () => guest.resizeExec('x', { rows: 1, cols: 1 }),
    () => guest.signalProcess(7, { signal: 'SIGTERM' }),
  ];

  it('are what they should be, or an error of ours', async () => {
    const almost = fc.record({
      stdin_bytes: fc.oneof(fc.integer(), fc.double(), fc.string()),
      closed: fc.oneof(fc.boolean(), fc.anything()),
      processes: fc.oneof(fc.array(fc.object(), { maxLength: 3 }), fc.anything()),
    });
    const text = fc.oneof(
      fc.json(),
      fc.string(),
      almost.map((value) => JSON.stringify(value) ?? ''),
    );
    await fc.assert(
      fc.asyncProperty(text, fc.constantFrom(200, 204, 400, 404, 409, 500), async (body, status) => {
        onStream = (stream) => {
          stream.resume();
          answer(stream, status === 204 ? '' : body, status);
        };
        for (const call of calls) {
          try {
            await call();
          } catch (error) {
            expect(error).toBeInstanceOf(AppError);
          }
        }
      }),
      { numRuns: 60 },
    );
  }, 60_000);

  it('are bounded', async () => {
    const one = { pid: 1, ppid: 0, command: ['x'], user: 'root', state: 'R', cpu_seconds: 0, memory_bytes: 0 };
    const processes = Array.from({ length: 5_000 }, () => ({ ...one, started_at: new Date(0).toISOString() }));
    onStream = (stream) => answer(stream, JSON.stringify({ processes, truncated: false }));
    await expect(guest.processes()).rejects.toMatchObject({ code: 'unavailable' });
  });
});

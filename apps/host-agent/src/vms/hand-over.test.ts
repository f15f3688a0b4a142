import type { ServerHttp2Stream } from 'node:http2';
import { GuestIdentity } from '@fuse/host-protocol';
import { createLogger } from '@fuse/runtime';
import { temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Guest } from '../guest/guest.ts';
import { connectGuest } from '../guest/guest-client.ts';
import { HostileGuest } from '../guest/hostile-guest.ts';
import { handOver, type NewMachine } from './hand-over.ts';

const log = createLogger({ name: 'test', level: 'silent' });
const machine: NewMachine = { hostname: 'env-1', previousGeneration: 0, reason: 'fork', log };

type Answer = (identity: GuestIdentity) => { status?: number; body: unknown } | undefined;

let directory: Awaited<ReturnType<typeof temporaryDirectory>>;
let peer: HostileGuest;
let guest: Guest;
let answer: Answer;
let asked: GuestIdentity[];

const nanoseconds = (ms: number): string => String(BigInt(ms) * 1_000_000n);
const confirm = (identity: GuestIdentity, more: object = {}) => ({
  body: {
    generation: identity.generation,
    hostname: identity.hostname,
    time_unix_ns: nanoseconds(Date.now()),
    ...more,
  },
});

beforeEach(async () => {
  asked = [];
  directory = await temporaryDirectory('fuse-hand-over-');
  peer = await HostileGuest.listen({
    directory: directory.path,
    onStream: (stream, path) => void reply(stream, path),
  });
  guest = connectGuest(peer.vmm, { log });
});
afterEach(async () => {
  await guest[Symbol.asyncDispose]();
  await peer[Symbol.asyncDispose]();
  await directory[Symbol.asyncDispose]();
});

async function reply(stream: ServerHttp2Stream, path: string): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer); // an HTTP/2 stream gives Buffers
  let given: ReturnType<Answer>;
  if (path === '/v1/health')
    given = {
      body: { protocol: 1, agent_version: '', kernel: '', boot_id: '', uptime_ms: 1, generation: 8e12, execs: 0 },
    };
  else {
    const identity = GuestIdentity.parse(JSON.parse(Buffer.concat(chunks).toString()));
    asked.push(identity);
    given = answer(identity);
  }
  if (given === undefined || stream.destroyed) return;
  stream.respond({ ':status': given.status ?? 200 });
  stream.end(JSON.stringify(given.body));
}

const signal = () => AbortSignal.timeout(20_000);

describe('a guest is handed over', () => {
  it('once it has confirmed its new identity', async () => {
    answer = confirm;
    const { generation } = await handOver(guest, { ...machine, previousGeneration: 9e12 }, signal());
    expect(generation).toBe(9e12 + 1);
    expect(asked).toMatchObject([{ hostname: 'env-1', generation, reason: 'fork', hooks_deadline_ms: 5_000 }]);
  });

  it('when its clock is right in the end, under the generation that it was first told, with fresh entropy each time', async () => {
    answer = (identity) =>
      confirm(identity, asked.length < 3 ? { time_unix_ns: nanoseconds(Date.now() - 3_600_000) } : {});
    await handOver(guest, machine, signal());
    expect(new Set(asked.map(({ generation }) => generation)).size).toBe(1);
    expect(new Set(asked.map(({ entropy_base64 }) => entropy_base64)).size).toBe(3);
  });

  it('under a generation above the one in its memory, which a host with another clock may have given', async () => {
    answer = (identity) =>
      identity.generation > 8e12
        ? confirm(identity)
        : { status: 409, body: { error: { code: 'conflict', message: '' } } };
    expect((await handOver(guest, machine, signal())).generation).toBe(8e12 + 1);
  });

  it('when hooks of its failed, which the log tells', async () => {
    const lines: string[] = [];
    const telling = createLogger({ name: 'test', destination: { write: (line) => void lines.push(line) } });
    const hooks = [
      { name: '10-fine', exit_code: 0, timed_out: false, output: 'quiet' },
      { name: '20-slow', exit_code: 137, timed_out: true, output: 'why' },
    ];
    answer = (identity) => confirm(identity, { hooks });
    await handOver(guest, { ...machine, log: telling }, signal());
    const told = lines.map((line) => JSON.parse(line));
    expect(told).toMatchObject([
      { level: 30, msg: 'hook ran', hostname: 'env-1', hook: '10-fine' },
      {
        level: 40,
        msg: 'hook failed',
        hostname: 'env-1',
        hook: '20-slow',
        exit_code: 137,
        timed_out: true,
        output: 'why',
      },
    ]);
    expect(lines.join()).not.toContain('quiet');
  });
});

describe('a guest is not handed over', () => {
  it.each<[string, Answer]>([
    ['confirms another generation', (identity) => confirm(identity, { generation: 1 })],
    ['confirms another name', (identity) => confirm(identity, { hostname: 'other' })],
    ['keeps a wrong clock', (identity) => confirm(identity, { time_unix_ns: nanoseconds(Date.now() + 10_000) })],
    ['has a clock that is no number', (identity) => confirm(identity, { time_unix_ns: 'NaN' })],
    ['answers something else', () => ({ body: { ok: true } })],
    ['could not do it', () => ({ status: 500, body: { error: { code: 'internal', message: 'x' } } })],
    ['always has a newer generation', () => ({ status: 409, body: { error: { code: 'conflict', message: 'x' } } })],
    ['reports hooks without end', (identity) => confirm(identity, { hooks: Array(65).fill({}) })],
  ])('that %s', async (_, how) => {
    answer = how;
    await expect(handOver(guest, machine, signal())).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('that says nothing until its deadline', async () => {
    answer = () => undefined;
    const late = handOver(guest, { ...machine, confirmationMs: 200, hooksDeadlineMs: 100 }, signal());
    await expect(late).rejects.toMatchObject({
      code: 'unavailable',
      message: 'the guest did not confirm its new identity in 300 ms',
    });
  });

  it('when its caller no longer wants it', async () => {
    answer = () => undefined;
    const stop = new AbortController();
    const given = handOver(guest, machine, stop.signal);
    given.catch(() => {});
    await expect.poll(() => asked.length).toBe(1);
    stop.abort(new Error('enough'));
    await expect(given).rejects.toThrow('enough');
  });
});

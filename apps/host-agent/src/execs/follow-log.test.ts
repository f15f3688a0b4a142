import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AppError, encodeFrame, FrameParser, frameType } from '@fuse/contract';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { EndsSpool } from './ends-spool.ts';
import { type FollowedExec, followLog, startOfLog } from './follow-log.ts';
import { Followers } from './followers.ts';
import { Notifier } from './notifier.ts';
import { cutInto, exitFrame, frameStreams } from './test-frames.ts';

const never = new AbortController().signal;
const stdout = (size: number, byte = 'x') => encodeFrame(frameType.stdout, Buffer.alloc(size, byte));

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'fuse-follow-'));
});
afterEach(() => rm(directory, { recursive: true }));

/** An exec of which only the log is there. */
async function growing(hold?: { until_followed_ms: number }) {
  const changes = new Notifier();
  const followers = new Followers({ hold });
  const spool = await EndsSpool.open({
    ...{ directory, followers, limitBytes: 16_384 },
    onAppended: () => changes.notify(),
  });
  const state = { running: true, detached: false, error: undefined as string | undefined };
  const exec: FollowedExec = {
    followers,
    changes,
    log: spool,
    recent: (position) => spool.recent(position),
    get running() {
      return state.running;
    },
    get detached() {
      return state.detached;
    },
    view: () => ({
      ...{ id: 'x', argv: [], stdin_open: false, created_at: '', log_bytes: spool.end, log_truncated: false },
      state: state.error === undefined ? 'exited' : 'lost',
      ...(state.error === undefined ? {} : { error: state.error }),
    }),
  };
  const finish = (change: Partial<typeof state> = { running: false }) => {
    Object.assign(state, change);
    changes.notify();
  };
  return { exec, spool, finish };
}

/** Checks every byte against the stream at its offset; what is passed over must be told. Returns where it ended. */
function expectParts(bytes: Uint8Array, from: number, stream: Uint8Array): { end: number; gaps: number } {
  const parser = new FrameParser();
  let at = from;
  let gaps = 0;
  for (const { type, payload } of parser.push(bytes)) {
    if (type === frameType.heartbeat) continue;
    if (type === frameType.gap) {
      const gap = JSON.parse(Buffer.from(payload).toString()) as { from: number; to: number };
      expect(gap.from).toBe(at);
      expect(gap.to).toBeGreaterThan(at);
      at = gap.to;
      gaps += 1;
      continue;
    }
    const frame = encodeFrame(type, payload);
    expect(Buffer.from(stream.subarray(at, at + frame.length)).equals(frame)).toBe(true);
    at += frame.length;
  }
  expect(parser.pendingBytes).toBe(0);
  return { end: at, gaps };
}

describe('a followed log', () => {
  it('is whole but for what is told to be a gap, however fast it grows and is read; with hold nothing is missing', async () => {
    const paces = fc.array(fc.nat(3), { minLength: 1, maxLength: 20 });
    await fc.assert(
      fc.asyncProperty(frameStreams, paces, fc.boolean(), async ({ frames, cuts }, pace, held) => {
        await rm(directory, { recursive: true });
        directory = await mkdtemp(join(tmpdir(), 'fuse-follow-'));
        const stream = Buffer.concat([...Array.from({ length: 16 }, () => frames).flat(), exitFrame]);
        const { exec, spool, finish } = await growing(held ? { until_followed_ms: 0 } : undefined);
        const read: Uint8Array[] = [];
        const reading = (async () => {
          let round = 0;
          for await (const chunk of followLog(exec, 0, { follow: true, signal: never })) {
            read.push(chunk);
            for (let turn = pace[round++ % pace.length] ?? 0; turn > 0; turn--)
              await new Promise((resolve) => setImmediate(resolve));
          }
        })();
        for (const chunk of cutInto(stream, cuts)) await spool.take(chunk, never);
        finish();
        await reading;
        const { end, gaps } = expectParts(Buffer.concat(read), 0, stream);
        expect(end).toBe(stream.length);
        if (held) expect(gaps).toBe(0);
        await spool.close();
      }),
      { numRuns: 60 },
    );
  }, 120_000);

  it('is read to the end of its file although that was dropped meanwhile', async () => {
    const { exec, spool, finish } = await growing();
    const frames = Array.from({ length: 60 }, (_, at) => stdout(1_000, String.fromCharCode(97 + (at % 26))));
    const stream = Buffer.concat([...frames, exitFrame]);
    await spool.take(stream.subarray(0, 12_000), never);
    const log = followLog(exec, 9_500, { follow: true, signal: never });
    const read = [(await log.next()).value ?? Buffer.alloc(0)];
    await spool.take(stream.subarray(12_000), never);
    finish();
    for await (const chunk of log) read.push(chunk);
    // It began within a frame: what is behind that frame is checked.
    const border = Math.ceil(9_500 / 1_008) * 1_008;
    const bytes = Buffer.concat(read);
    expect(bytes.subarray(0, border - 9_500).equals(stream.subarray(9_500, border))).toBe(true);
    expect(expectParts(bytes.subarray(border - 9_500), border, stream)).toEqual({ end: stream.length, gaps: 1 });
    await spool.close();
  });

  it('begins at a byte, or at a frame near its end', async () => {
    const { exec, spool } = await growing();
    for (let round = 0; round < 100; round++) await spool.take(stdout(992), never);
    expect(await startOfLog(exec.log, { offset: 77 })).toBe(77);
    await expect(startOfLog(exec.log, { offset: 100_001 })).rejects.toMatchObject({ code: 'invalid_argument' });
    expect(await startOfLog(exec.log, { tail: 0 })).toBe(100_000);
    expect(await startOfLog(exec.log, { tail: 1_500 })).toBe(99_000);
    expect(await startOfLog(exec.log, { tail: 1_000 })).toBe(99_000);
    // There it is not kept: the gap says so.
    expect(await startOfLog(exec.log, { tail: 50_000 })).toBe(50_000);
    expect(await startOfLog(exec.log, { tail: 1_000_000 })).toBe(0);
    expect(await startOfLog({ parts: [], end: 0 }, { tail: 5 })).toBe(0);
    await spool.close();
  });

  it('beats while nothing comes, between frames', async () => {
    const { exec, spool, finish } = await growing();
    await spool.take(stdout(10), never);
    const read: Uint8Array[] = [];
    for await (const chunk of followLog(exec, 0, { follow: true, heartbeat: true, heartbeatMs: 20, signal: never })) {
      read.push(chunk);
      if (read.length === 3) await spool.take(exitFrame, never);
      if (read.length === 5) finish();
    }
    const types = [...new FrameParser().push(Buffer.concat(read))].map(({ type }) => type);
    expect(types.slice(0, 4)).toEqual([frameType.stdout, frameType.heartbeat, frameType.heartbeat, frameType.exit]);
    await spool.close();
  });

  it('is cut, not ended, when the exec is lost or the reader is let go', async () => {
    for (const change of [{ running: false, error: 'the VM died' }, { detached: true }]) {
      const { exec, spool, finish } = await growing();
      const log = followLog(exec, 0, { follow: true, signal: never });
      const next = log.next();
      finish(change);
      await expect(next).rejects.toBeInstanceOf(AppError);
      expect(exec.followers.count).toBe(0);
      await spool.close();
    }
    const { exec, spool } = await growing();
    const caller = new AbortController();
    const next = followLog(exec, 0, { follow: true, signal: caller.signal }).next();
    caller.abort(new Error('the caller has gone'));
    await expect(next).rejects.toThrow('the caller has gone');
    await spool.close();
  });

  it('that is not followed ends where it stood', async () => {
    const { exec, spool } = await growing();
    await spool.take(stdout(10), never);
    const log = followLog(exec, 0, { follow: false, signal: never });
    await spool.take(stdout(20), never);
    const read: Uint8Array[] = [];
    for await (const chunk of log) read.push(chunk);
    expect(Buffer.concat(read).length).toBe(46);
    await spool.close();
  });
});

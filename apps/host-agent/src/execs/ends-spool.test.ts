import { execFileSync } from 'node:child_process';
import { appendFile, mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { encodeFrame, FrameParser, frameType } from '@fuse/contract';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { EndsSpool, type EndsSpoolOptions } from './ends-spool.ts';
import { Followers, IN_FLIGHT_BYTES } from './followers.ts';
import { bytesOfParts, gapOf, type LogView, partEnd } from './log-parts.ts';
import { cutInto, exit, exitFrame, frameStreams } from './test-frames.ts';

const never = new AbortController().signal;
const stdout = (size: number, byte = 'x') => encodeFrame(frameType.stdout, Buffer.alloc(size, byte));

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'fuse-ends-'));
});
afterEach(() => rm(directory, { recursive: true }));

const open = (options: Partial<EndsSpoolOptions> = {}) =>
  EndsSpool.open({ directory, limitBytes: 65_536, followers: new Followers({}), onAppended: () => {}, ...options });

async function bytesOf(log: LogView): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of bytesOfParts(log.parts)) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Every kept byte is the stream's at its offset, in whole frames, with one gap at most. */
async function expectTrue(log: LogView, stream: Uint8Array): Promise<void> {
  expect(log.end).toBeLessThanOrEqual(stream.length);
  const gap = gapOf(log);
  const expected =
    gap === undefined
      ? stream.subarray(0, log.end)
      : Buffer.concat([stream.subarray(0, gap.from), stream.subarray(gap.to, log.end)]);
  expect((await bytesOf(log)).equals(expected)).toBe(true);
  const parser = new FrameParser();
  for (const part of log.parts) {
    for (const _frame of parser.push(await readFile(part.path).then((bytes) => bytes.subarray(0, part.bytes))));
    expect(parser.pendingBytes).toBe(0);
  }
}

describe('EndsSpool', () => {
  it('keeps the first half and the last half of its bound, at the offsets of the stream', async () => {
    const spool = await open();
    const frames = Array.from({ length: 1_000 }, (_, at) => stdout(1_000, String.fromCharCode(97 + (at % 26))));
    const stream = Buffer.concat([...frames, exitFrame]);
    for (const chunk of cutInto(stream, [7, 100_000, 100_003, 500_000])) await spool.take(chunk, never);
    expect(spool.end).toBe(stream.length);
    expect(spool.truncated).toBe(true);
    const gap = gapOf(spool);
    expect(gap?.from).toBeGreaterThan(30_000);
    expect(gap?.from).toBeLessThanOrEqual(32_768);
    expect(stream.length - (gap?.to ?? 0)).toBeGreaterThan(28_000);
    expect(stream.length - (gap?.to ?? 0)).toBeLessThanOrEqual(32_768);
    await expectTrue(spool, stream);
    await spool.close();
    const names = await readdir(directory);
    const sizes = await Promise.all(names.map(async (name) => (await stat(join(directory, name))).size));
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThanOrEqual(65_536);
  });

  it('keeps all of what is within its bound, and a frame that is larger than it', async () => {
    const spool = await open();
    const small = stdout(60_000);
    await spool.take(small, never);
    expect(gapOf(spool)).toBeUndefined();
    expect(await bytesOf(spool)).toEqual(Buffer.from(small));
    const large = stdout(1_048_576, 'y');
    await spool.take(large, never);
    await spool.take(exitFrame, never);
    await expectTrue(spool, Buffer.concat([small, large, exitFrame]));
    await spool.close();
  });

  it('is true whatever is sent, however it is cut, wherever it is killed', async () => {
    await fc.assert(
      fc.asyncProperty(
        frameStreams,
        fc.array(fc.record({ at: fc.nat(), garbage: fc.nat(40) }), { maxLength: 4 }),
        async ({ frames, cuts }, kills) => {
          await rm(directory, { recursive: true });
          directory = await mkdtemp(join(tmpdir(), 'fuse-ends-'));
          const many = Array.from({ length: 12 }, () => frames).flat();
          const stream = Buffer.concat([...many, exitFrame]);
          const ends = kills.map(({ at }) => at % stream.length).sort((a, b) => a - b);
          let spool = await open({ limitBytes: 16_384 });
          let seen: unknown;
          for (const [index, end] of [...ends, stream.length].entries()) {
            const from = await spool.resumeAt(0);
            for (const chunk of cutInto(stream.subarray(from, Math.max(from, end)), cuts)) {
              seen ??= await spool.take(chunk, never);
              await expectTrue(spool, stream);
            }
            if (index === ends.length) break;
            const last = spool.parts.at(-1)?.path ?? join(directory, 'frames');
            const half = stream.subarray(spool.end, spool.end + (kills[index]?.garbage ?? 0));
            await spool.close();
            // A write that was cut: less than what would have been a whole frame.
            if (half.length < 8) await appendFile(last, half);
            spool = await open({ limitBytes: 16_384 });
            await expectTrue(spool, stream);
          }
          expect(spool.end).toBe(stream.length);
          expect(seen ?? spool.exitInFile).toEqual(exit);
          await spool.close();
        },
      ),
      { numRuns: 60 },
    );
  }, 120_000);

  it('finds again what a killed process was about to remove, and does not believe in a log with two gaps', async () => {
    const first = await open();
    const stream = Buffer.concat([...Array.from({ length: 100 }, () => stdout(1_000)), exitFrame]);
    await first.take(stream.subarray(0, 90_000), never);
    const { end } = first;
    const second = first.parts[2];
    await first.close();
    if (second !== undefined) await rm(second.path);
    const found = await open();
    expect(found.end).toBe(end);
    await expectTrue(found, stream);
    expect(found.parts[1]?.offset).toBe(second === undefined ? undefined : partEnd(second));
    await found.take(stream.subarray(await found.resumeAt(0)), never);
    await expectTrue(found, stream);
    await found.close();
    const again = await open();
    expect(again.exitInFile).toEqual(exit);
    await again.close();
  });

  it('has one gap when the guest has let go of bytes that are not here', async () => {
    const spool = await open();
    await spool.take(stdout(100), never);
    expect(await spool.resumeAt(5_000)).toBe(5_000);
    await spool.take(stdout(50), never);
    expect(gapOf(spool)).toEqual({ from: 108, to: 5_000 });
    expect(await spool.resumeAt(9_000)).toBe(9_000);
    await spool.take(exitFrame, never);
    expect(gapOf(spool)).toEqual({ from: 108, to: 9_000 });
    expect((await bytesOf(spool)).length).toBe(108 + exitFrame.length);
    await spool.close();
  });

  it('gives those who follow closely what came last without a file', async () => {
    const followers = new Followers({});
    const spool = await open({ followers });
    await spool.take(stdout(10), never);
    expect(spool.recent(0)).toBeUndefined();
    const follower = followers.add(18);
    await spool.take(stdout(20, 'y'), never);
    expect(spool.recent(18)).toEqual(Buffer.from(stdout(20, 'y')));
    expect(spool.recent(30)?.length).toBe(16);
    for (let round = 0; round < 10; round++) await spool.take(stdout(50_000), never);
    expect(spool.recent(18)).toBeUndefined();
    follower.close();
    await spool.take(stdout(10), never);
    expect(spool.recent(spool.end - 5)).toBeUndefined();
    await spool.close();
  });
});

describe('EndsSpool, held', () => {
  const hold = { until_followed_ms: 0 };

  /** Feeds frames until it has to wait. */
  async function fill(spool: EndsSpool, frames: number): Promise<{ waiting: boolean; done: Promise<void> }> {
    const done = (async () => {
      for (let at = 0; at < frames; at++) await spool.take(stdout(1_000), never);
    })();
    let over = false;
    void done.then(() => {
      over = true;
    });
    let before = -1;
    while (!over && spool.end !== before) {
      before = spool.end;
      await new Promise((resolve) => setTimeout(resolve, 60));
    }
    return { waiting: !over, done };
  }

  it('drops nothing that a follower has not read, and goes on as it reads', async () => {
    const followers = new Followers({ hold });
    const spool = await open({ followers });
    const follower = followers.add(0);
    const { waiting, done } = await fill(spool, 300);
    expect(waiting).toBe(true);
    expect(gapOf(spool)).toBeUndefined();
    expect(spool.end).toBeGreaterThan(60_000);
    expect(spool.end).toBeLessThanOrEqual(65_536);
    for (let at = 0; at < 300 * 1_008; at = Math.min(at + 500, spool.end)) {
      follower.moveTo(at);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await done;
    expect(gapOf(spool)).toBeUndefined(); // what was on its way may be asked for again
    await spool.close();
  });

  it('holds a terminal back soon', async () => {
    const followers = new Followers({ hold });
    const spool = await open({ followers, maxLagBytes: 10_000 });
    const follower = followers.add(0);
    const { waiting, done } = await fill(spool, 30);
    expect(waiting).toBe(true);
    expect(spool.end).toBeLessThanOrEqual(10_000);
    follower.close();
    await done;
    await spool.close();
  });

  it('waits for nobody who takes nothing, who has gone, or when the command is to end', async () => {
    const gone = [
      (followers: Followers) => void followers.add(0),
      (followers: Followers) => {
        const follower = followers.add(0);
        setTimeout(() => follower.close(), 200);
      },
      (followers: Followers) => {
        followers.add(0);
        setTimeout(() => followers.release(), 200);
      },
    ];
    for (const [index, go] of gone.entries()) {
      const followers = new Followers({ hold, ...(index === 0 ? { stalledMs: 300 } : {}) });
      const spool = await open({ followers });
      go(followers);
      const { done } = await fill(spool, 200);
      await done;
      await spool.close();
      await rm(directory, { recursive: true });
      directory = await mkdtemp(join(tmpdir(), 'fuse-ends-'));
    }
  });

  it('counts a follower that goes on again', async () => {
    const followers = new Followers({ hold, stalledMs: 200 });
    const spool = await open({ followers });
    const follower = followers.add(0);
    await (await fill(spool, 200)).done;
    expect(followers.slowest).toBe(Number.POSITIVE_INFINITY);
    follower.moveTo(spool.end);
    expect(followers.slowest).toBe(spool.end);
    await spool.close();
  });

  it('waits a while for one who has not come, or has gone before the end', async () => {
    const followers = new Followers({ hold: { until_followed_ms: 400 } });
    followers.expect(0);
    const spool = await open({ followers });
    expect(followers.slowest).toBe(0);
    await (await fill(spool, 200)).done;
    expect(followers.slowest).toBe(Number.POSITIVE_INFINITY);
    const follower = followers.add(spool.end);
    follower.close();
    expect(followers.slowest).toBe(spool.end);
    await spool.close();
  });

  it('ends at once when it is told to', async () => {
    const followers = new Followers({ hold });
    followers.add(0);
    const spool = await open({ followers });
    const stop = new AbortController();
    setTimeout(() => stop.abort(new Error('the VM was destroyed')), 50);
    await expect(
      (async () => {
        for (;;) await spool.take(stdout(1_000), stop.signal);
      })(),
    ).rejects.toThrow('the VM was destroyed');
    await spool.close();
  });

  it('keeps behind a follower what may have been on its way', async () => {
    const followers = new Followers({ hold });
    const spool = await open({ followers });
    const follower = followers.add(0);
    const total = IN_FLIGHT_BYTES + 2_000_000;
    for (let at = 0; at < total; at += 100_008) {
      await spool.take(stdout(100_000), never);
      follower.moveTo(spool.end);
    }
    const gap = gapOf(spool);
    expect(gap).toBeDefined();
    expect(spool.end - (gap?.to ?? 0)).toBeGreaterThanOrEqual(IN_FLIGHT_BYTES);
    expect(spool.end - (gap?.to ?? 0)).toBeLessThan(IN_FLIGHT_BYTES + 300_000);
    await spool.close();
  });
});

describe.skipIf(process.getuid?.() !== 0)('EndsSpool on a full disk', () => {
  it('drops what lies behind the head, and goes on', async () => {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=256k', 'fuse-test', directory]);
    try {
      const spool = await open({ limitBytes: 10_000_000 });
      const frames = Array.from({ length: 20 }, () => stdout(50_000));
      for (const frame of frames) await spool.take(frame, never);
      expect(spool.truncated).toBe(true);
      expect(spool.guestOffset).toBe(20 * 50_008);
      expect(await spool.take(exitFrame, never)).toEqual(exit);
      await expectTrue(spool, Buffer.concat([...frames, exitFrame]));
      await spool.close();
    } finally {
      execFileSync('umount', [directory]);
    }
  });
});

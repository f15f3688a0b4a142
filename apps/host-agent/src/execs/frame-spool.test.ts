import { execFileSync } from 'node:child_process';
import { appendFile, mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { encodeFrame, frameType } from '@fuse/contract';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readHeads } from './frame-file.ts';
import { FrameSpool } from './frame-spool.ts';

const stdout = (text: string) => encodeFrame(frameType.stdout, Buffer.from(text));
const stderr = (text: string) => encodeFrame(frameType.stderr, Buffer.from(text));
const exit = { exit_code: 0, timed_out: false, oom_killed: false, stdout_bytes: 3, stderr_bytes: 0, duration_ms: 1 };
const exitFrame = encodeFrame(frameType.exit, Buffer.from(JSON.stringify(exit)));

let directory: string;
let path: string;
let events: string[];
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'fuse-spool-'));
  path = join(directory, 'frames');
  events = [];
});
afterEach(() => rm(directory, { recursive: true }));

const open = (limitBytes = 1_000, truncated = false) =>
  FrameSpool.open({
    path,
    limitBytes,
    truncated,
    onTruncated: async () => {
      events.push(`truncated, ${(await readFile(path)).length} bytes in the log`);
    },
    onAppended: () => events.push('appended'),
  });

describe('FrameSpool', () => {
  it('takes up a log where another process left it, without the half frame at its end', async () => {
    const first = await open();
    await first.take(stdout('one'));
    await first.take(stderr('two').subarray(0, 9));
    await first.close();
    await appendFile(path, stderr('two').subarray(0, 9));

    const second = await open();
    expect(second.logBytes).toBe(stdout('one').length);
    expect(second.resumeAt(0)).toBe(stdout('one').length);
    await second.take(stderr('two'));
    await second.close();
    expect(await readFile(path)).toEqual(Buffer.concat([stdout('one'), stderr('two')]));
  });

  it('finds the exit that it had written before it could say so', async () => {
    const first = await open();
    expect(await first.take(Buffer.concat([stdout('one'), exitFrame]))).toEqual(exit);
    await first.close();
    const second = await open();
    expect(second.exitInFile).toEqual(exit);
    await second.close();
  });

  it('ends with an exit that was told outside the stream', async () => {
    const spool = await open();
    await spool.take(stdout('one'));
    await spool.takeExit(exit);
    await spool.close();
    expect(await readFile(path)).toEqual(Buffer.concat([stdout('one'), exitFrame]));
  });

  it('makes its file with the first bytes, and is closed behind a write that nobody waits for', async () => {
    const options = {
      path,
      limitBytes: 1_000_000,
      truncated: false,
      onTruncated: async () => {},
      onAppended: () => {},
    };
    const spool = FrameSpool.begin(options);
    expect(await stat(path).catch((error: NodeJS.ErrnoException) => error.code)).toBe('ENOENT');
    const frame = stdout('x'.repeat(60_000));
    const taken = spool.take(frame);
    await spool.close();
    await taken;
    expect(await readFile(path)).toEqual(Buffer.from(frame));
    await expect(spool.take(frame)).rejects.toThrow('closed');
    expect(await readFile(path)).toEqual(Buffer.from(frame));
  });

  it('has what is small in memory too', async () => {
    const spool = await open();
    await spool.take(stdout('one'));
    await spool.take(stdout('two'));
    expect(Buffer.from(spool.recent(stdout('one').length) ?? '')).toEqual(Buffer.from(stdout('two')));
    expect(spool.recent(spool.end)).toBeUndefined();
    await spool.take(stdout('x'.repeat(500)));
    await spool.take(stdout('y'.repeat(300)));
    expect(spool.recent(0)?.length).toBe(spool.end);
    await spool.close();
    const again = await open();
    expect(again.recent(0)).toBeUndefined();
    await again.close();
  });

  it('says that it cuts before it writes the cut frame', async () => {
    const spool = await open(stdout('one').length + 10);
    await spool.take(stdout('one'));
    await spool.take(stdout('twotwo'));
    await spool.close();
    expect(events).toEqual(['appended', `truncated, ${stdout('one').length} bytes in the log`, 'appended']);
    expect(await readFile(path)).toEqual(Buffer.concat([stdout('one'), stdout('tw')]));
  });

  it('asks for what the guest still keeps once its log was cut', async () => {
    const first = await open(stdout('one').length);
    await first.take(stdout('one'));
    await first.take(stdout('dropped'));
    const dropped = stdout('dropped').length;
    await first.close();

    const second = await open(stdout('one').length, true);
    expect(second.resumeAt(stdout('one').length + dropped)).toBe(stdout('one').length + dropped);
    expect(await second.take(exitFrame)).toEqual(exit);
    await second.close();
    expect(await readFile(path)).toEqual(Buffer.concat([stdout('one'), exitFrame]));
  });

  it('never leaves a hole when the guest has let go of bytes that the log lacks', async () => {
    const spool = await open();
    await spool.take(stdout('one'));
    expect(spool.resumeAt(5_000)).toBe(5_000);
    await spool.take(Buffer.concat([stdout('later'), exitFrame]));
    await spool.close();
    expect(spool.truncated).toBe(true);
    expect(await readFile(path)).toEqual(Buffer.concat([stdout('one'), exitFrame]));
  });
});

describe.skipIf(process.getuid?.() !== 0)('FrameSpool on a full disk', () => {
  it('drops what does not fit, keeps whole frames, and goes on', async () => {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=256k', 'fuse-test', directory]);
    try {
      const spool = await open(10_000_000);
      const frame = stdout('x'.repeat(50_000));
      for (let round = 0; round < 20; round++) await spool.take(frame);
      expect(spool.truncated).toBe(true);
      expect(spool.logBytes).toBe(Math.floor(spool.logBytes / frame.length) * frame.length);
      expect(spool.guestOffset).toBe(20 * frame.length);
      expect(await spool.take(exitFrame)).toEqual(exit);
      await spool.close();
      expect((await stat(path)).size).toBe(spool.logBytes);
    } finally {
      execFileSync('umount', [directory]);
    }
  });
});

describe('readHeads', () => {
  it('gives the head of each stream, bounded on its own', async () => {
    const spool = await open();
    for (const frame of [stdout('abc'), stderr('12'), stdout('def'), stderr('34'), exitFrame]) await spool.take(frame);
    await spool.close();
    const heads = await readHeads(spool, 4);
    expect([heads.stdout.toString(), heads.stderr.toString()]).toEqual(['abcd', '1234']);
    expect((await readHeads(spool, 0)).stdout.length).toBe(0);
    expect((await readHeads({ parts: [], end: 0 }, 10)).stdout.length).toBe(0);
  });
});

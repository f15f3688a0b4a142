import type { Readable } from 'node:stream';
import { encodeFrame, FrameParser, frameType } from '@fuse/contract';
import { EXEC_ARCHIVE_MAGIC, type ExecArchiveIndex, type HostExec } from '@fuse/host-protocol';
import { type ObjectStore, openObjectStore } from '@fuse/object-store';
import { temporaryDirectory } from '@fuse/testing';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ArchiveSource } from './exec-archive.ts';

const { signal } = new AbortController();
let directory: Awaited<ReturnType<typeof temporaryDirectory>>;
let store: ObjectStore;
let number = 0;
beforeAll(async () => {
  directory = await temporaryDirectory();
  store = await openObjectStore({ kind: 'file', directory: directory.path });
});
afterAll(async () => {
  await store[Symbol.asyncDispose]();
  await directory[Symbol.asyncDispose]();
});

const hostExec = (id: string, changes: Partial<HostExec> = {}): HostExec => ({
  id,
  state: 'exited',
  argv: ['true'],
  stdin_open: false,
  created_at: '2026-01-01T00:00:00Z',
  log_bytes: 0,
  log_truncated: false,
  exit: { exit_code: 0, timed_out: false, oom_killed: false, stdout_bytes: 0, stderr_bytes: 0, duration_ms: 1 },
  ...changes,
});

async function write(index: ExecArchiveIndex, logs: Uint8Array[]): Promise<ArchiveSource> {
  const text = Buffer.from(JSON.stringify(index));
  const size = Buffer.alloc(4);
  size.writeUInt32BE(text.length);
  number += 1;
  await store.put(`execs/${number}`, Buffer.concat([Buffer.from(EXEC_ARCHIVE_MAGIC), size, text, ...logs]));
  return ArchiveSource.open(store, `execs/${number}`, signal);
}

async function all(source: ArchiveSource, id: string, from: { offset: number } | { tail: number }) {
  const { offset, body } = await source.log(id, { from, follow: false, signal });
  const chunks: Uint8Array[] = [];
  for await (const chunk of body as Readable) chunks.push(chunk);
  return { offset, bytes: Buffer.concat(chunks) };
}

describe('an archive of execs', () => {
  it('gives each log from any frame on, its gaps told, and from a frame near its end', async () => {
    const frames = fc.array(fc.uint8Array({ minLength: 1, maxLength: 50 }), { minLength: 1, maxLength: 20 });
    await fc.assert(
      fc.asyncProperty(frames, frames, fc.nat(19), fc.nat(19), async (mine, other, dropFrom, dropCount) => {
        const encoded = mine.map((bytes) => Buffer.from(encodeFrame(frameType.stdout, bytes)));
        const starts = encoded.map((_, at) => encoded.slice(0, at).reduce((sum, { length }) => sum + length, 0));
        const logBytes = encoded.reduce((sum, { length }) => sum + length, 0);
        const kept = encoded.map((_, at) => at < dropFrom || at >= dropFrom + dropCount);
        const before = Buffer.concat(other.map((bytes) => Buffer.from(encodeFrame(frameType.stderr, bytes))));
        let at = before.length;
        const segments = encoded.flatMap((bytes, position) => {
          if (kept[position] !== true) return [];
          const segment = { offset: starts[position] ?? 0, at, size_bytes: bytes.length };
          at += bytes.length;
          return [segment];
        });
        const source = await write(
          {
            execs: [
              {
                exec: hostExec('other', { log_bytes: before.length }),
                segments: [{ offset: 0, at: 0, size_bytes: before.length }],
              },
              { exec: hostExec('mine', { log_bytes: logBytes }), segments },
            ],
          },
          [before, ...encoded.filter((_, position) => kept[position])],
        );
        for (const [position, start] of starts.entries()) {
          const { bytes } = await all(source, 'mine', { offset: start });
          const seen = [...new FrameParser().push(bytes)];
          let offset = start;
          for (const { type, payload } of seen) {
            if (type === frameType.gap) {
              const { from, to } = JSON.parse(Buffer.from(payload).toString());
              expect(from).toBe(offset);
              offset = to;
            } else {
              expect(Buffer.from(payload)).toEqual(Buffer.from(mine[starts.indexOf(offset)] ?? []));
              offset += 8 + payload.length;
            }
          }
          expect(offset).toBe(logBytes);
          const tail = await all(source, 'mine', { tail: logBytes - start });
          expect(tail.offset).toBeGreaterThanOrEqual(start);
          if (kept[position] === true) expect(tail.offset).toBe(start);
        }
      }),
      { numRuns: 40 },
    );
  });

  it('gives the head of each stream, up to the first gap, as the result', async () => {
    const frames = [
      encodeFrame(frameType.stdout, Buffer.from('one ')),
      encodeFrame(frameType.stderr, Buffer.from('error')),
      encodeFrame(frameType.stdout, Buffer.from('two')),
      encodeFrame(frameType.stdout, Buffer.from('behind the gap')),
    ].map((frame) => Buffer.from(frame));
    const [a = 0, b = 0, c = 0, d = 0] = frames.map(({ length }) => length);
    const exit = {
      exit_code: 3,
      timed_out: false,
      oom_killed: false,
      stdout_bytes: 500,
      stderr_bytes: 5,
      duration_ms: 1,
    };
    const source = await write(
      {
        execs: [
          {
            exec: hostExec('gapped', { log_bytes: 1_000, exit }),
            segments: [
              { offset: 0, at: 0, size_bytes: a + b + c },
              { offset: 1_000 - d, at: a + b + c, size_bytes: d },
            ],
          },
        ],
      },
      frames,
    );
    const result = await source.result('gapped', 1_000, signal);
    expect(Buffer.from(result.stdout_base64, 'base64').toString()).toBe('one two');
    expect(Buffer.from(result.stderr_base64, 'base64').toString()).toBe('error');
    expect(result.truncated).toBe(true);
    const short = await source.result('gapped', 2, signal);
    expect(Buffer.from(short.stdout_base64, 'base64').toString()).toBe('on');
  });

  it('has a long index, says what it does not have, and calls lost whatever ran', async () => {
    const execs = Array.from({ length: 2_000 }, (_, at) => ({
      exec: hostExec(`exec-${at}`, at === 7 ? { state: 'running' } : {}),
      segments: [],
    }));
    const source = await write({ execs }, []);
    expect((await source.list()).length).toBe(2_000);
    expect(await source.get('exec-7')).toMatchObject({ state: 'lost' });
    await expect(source.get('none')).rejects.toMatchObject({ code: 'not_found' });
    await expect(ArchiveSource.open(store, 'execs/none', signal)).rejects.toMatchObject({ code: 'not_found' });
  });

  it.each([
    ['nothing', Buffer.alloc(0)],
    ['other magic', Buffer.from('FUSEEXE2\0\0\0\x02{}')],
    ['an index that is cut', Buffer.from('FUSEEXE1\0\0\0\x20{"execs":[')],
    ['an index over its bound', Buffer.from('FUSEEXE1\xff\xff\xff\xff{}', 'latin1')],
    ['an index of another shape', Buffer.from('FUSEEXE1\0\0\0\x02{}')],
  ])('that is %s is damaged', async (_, bytes) => {
    number += 1;
    await store.put(`execs/${number}`, bytes);
    await expect(ArchiveSource.open(store, `execs/${number}`, signal)).rejects.toMatchObject({
      code: 'integrity_error',
    });
  });
});

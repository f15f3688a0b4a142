import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  decodeExecArchiveIndex,
  EXEC_ARCHIVE_PREFIX_BYTES,
  execArchiveIndexBytes,
  type HostExec,
} from '@fuse/host-protocol';
import { openObjectStore } from '@fuse/object-store';
import { createLogger } from '@fuse/runtime';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type ArchivedExec, archiveExecs, planArchive } from './archive-execs.ts';
import { gapOf, type LogPart } from './log-parts.ts';

const log = createLogger({ name: 'test', level: 'silent' });

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'fuse-archive-'));
});
afterEach(() => rm(directory, { recursive: true }));

function execOf(id: string, parts: LogPart[], end: number): ArchivedExec {
  const gap = gapOf({ parts, end });
  const view: HostExec = {
    id,
    state: 'exited',
    argv: ['x'.repeat(100)],
    stdin_open: false,
    created_at: '2026-01-01T00:00:00.000Z',
    log_bytes: end,
    log_truncated: gap !== undefined,
    ...(gap === undefined ? {} : { log_gap: gap }),
  };
  return { view: () => view, log: { parts, end } };
}

/** Logs with a head, a tail, or a gap between the two. */
const shapes = fc.array(
  fc.record({ head: fc.nat(50), gap: fc.nat(50), tail: fc.array(fc.integer({ min: 1, max: 40 }), { maxLength: 5 }) }),
  { maxLength: 8 },
);

describe('what is archived', () => {
  it('is within its bounds, the newest first, each with one gap at most, which it tells', () => {
    fc.assert(
      fc.property(shapes, fc.nat(400), fc.integer({ min: 1_024, max: 4_000 }), (given, maxLog, maxIndex) => {
        const execs = given.map(({ head, gap, tail }, at) => {
          const parts: LogPart[] = head === 0 ? [] : [{ offset: 0, path: 'head', bytes: head }];
          let end = head + (tail.length === 0 ? 0 : gap);
          for (const bytes of tail) {
            parts.push({ offset: end, path: `tail-${end}`, bytes });
            end += bytes;
          }
          return execOf(`x${at}`, parts, end);
        });
        const { index, parts } = planArchive(execs, maxLog, maxIndex);
        expect(parts.reduce((sum, { bytes }) => sum + bytes, 0)).toBeLessThanOrEqual(maxLog);
        expect(JSON.stringify(index).length).toBeLessThanOrEqual(maxIndex);
        expect(index.execs.map(({ exec }) => exec.id)).toEqual(
          execs.slice(execs.length - index.execs.length).map((exec) => exec.view().id),
        );
        const objectBytes = parts.reduce((sum, { bytes }) => sum + bytes, 0);
        const json = Buffer.from(JSON.stringify(index));
        expect(decodeExecArchiveIndex(json, EXEC_ARCHIVE_PREFIX_BYTES + json.length + objectBytes)).toEqual(index);
        for (const { exec, segments } of index.execs) {
          const kept = segments.map(({ offset, size_bytes }) => ({ offset, bytes: size_bytes, path: '' }));
          expect(exec.log_gap).toEqual(gapOf({ parts: kept, end: exec.log_bytes }));
        }
      }),
    );
  });

  it('is all there is when it fits', () => {
    const parts = [
      { offset: 0, path: 'head', bytes: 10 },
      { offset: 100, path: 'tail', bytes: 20 },
    ];
    const plan = planArchive([execOf('old', [], 0), execOf('x', parts, 120)]);
    expect(plan.parts).toEqual(parts);
    expect(plan.index.execs[1]).toMatchObject({ exec: { log_gap: { from: 10, to: 100 } } });
    const tight = planArchive([execOf('old', parts, 120), execOf('new', parts, 120)], 45);
    expect(tight.index.execs.map(({ exec }) => exec.log_gap)).toEqual([
      { from: 10, to: 120 },
      { from: 10, to: 100 },
    ]);
  });

  it('is read back byte for byte, and the same when it is written again', async () => {
    await using store = await openObjectStore({ kind: 'file', directory: join(directory, 'objects') });
    await store.check();
    const path = join(directory, 'frames');
    await writeFile(path, 'the bytes of a log');
    const execs = [execOf('x', [{ offset: 0, path, bytes: 9 }], 9)];
    for (let round = 0; round < 2; round++) expect(await archiveExecs(store, 'a/execs', execs, { log })).toBe(true);
    const object = Buffer.concat(await (await store.get('a/execs')).body.toArray());
    const size = execArchiveIndexBytes(object);
    expect(object.subarray(EXEC_ARCHIVE_PREFIX_BYTES + size).toString()).toBe('the bytes');
  });

  it('is given up when the store fails for too long, or a log is gone', async () => {
    await using store = await openObjectStore({ kind: 'file', directory: join(directory, 'objects') });
    await store.check();
    const gone = [execOf('x', [{ offset: 0, path: join(directory, 'gone'), bytes: 9 }], 9)];
    expect(await archiveExecs(store, 'a/execs', gone, { log, giveUpMs: 700 })).toBe(false);
    await rm(join(directory, 'objects'), { recursive: true });
    await writeFile(join(directory, 'objects'), 'no directory');
    expect(await archiveExecs(store, 'a/execs', [execOf('x', [], 0)], { log, giveUpMs: 700 })).toBe(false);
  });
});

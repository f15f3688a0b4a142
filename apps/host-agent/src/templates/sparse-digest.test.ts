import { open, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { alignedExtents, parseFilefrag, sparseDigest } from './sparse-digest.ts';

let directory: TemporaryDirectory;
beforeEach(async () => {
  directory = await temporaryDirectory();
});
afterEach(() => directory[Symbol.asyncDispose]());

async function file(name: string, sizeBytes: number, writes: [offset: number, bytes: Buffer][]): Promise<string> {
  const path = join(directory.path, name);
  await writeFile(path, '');
  await truncate(path, sizeBytes);
  const handle = await open(path, 'r+');
  for (const [offset, bytes] of writes) await handle.write(bytes, 0, bytes.length, offset);
  await handle.close();
  return path;
}

const data = Buffer.alloc(10_000, 'x');

it('is the same for a hole and for written zeros', async () => {
  const sparse = await file('sparse', 50_000_000, [[20_000_000, data]]);
  const full = await file('full', 50_000_000, [
    [0, Buffer.alloc(1_000_000)],
    [20_000_000, data],
    [30_000_000, Buffer.alloc(5_000_000)],
  ]);
  expect(await sparseDigest(full)).toBe(await sparseDigest(sparse));
});

it('differs when any byte, its place or the size differs', async () => {
  const digests = await Promise.all(
    (
      [
        [50_000_000, 20_000_000, data],
        [50_000_001, 20_000_000, data],
        [50_000_000, 20_000_001, data],
        [50_000_000, 20_065_536, data],
        [50_000_000, 49_990_000, data],
        [50_000_000, 20_000_000, Buffer.concat([data, Buffer.from('x')])],
        [50_000_000, 0, Buffer.alloc(0)],
        [0, 0, Buffer.alloc(0)],
      ] as const
    ).map(async ([size, offset, bytes], number) => sparseDigest(await file(String(number), size, [[offset, bytes]]))),
  );
  expect(new Set(digests).size).toBe(digests.length);
});

it('costs what is written, not what the file could hold', async () => {
  const path = await file('huge', 1024 ** 4, [[1024 ** 4 - 10_000, data]]);
  expect(await sparseDigest(path)).toHaveLength(64);
}, 5_000);

it('reads the extents that filefrag prints', () => {
  const output = `Filesystem type is: ef53
File size of x is 2147483648 (524288 blocks of 4096 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..     257:   26404864..  26405121:    258:
   1:    25600..   26367:          0..         0:      0:             unknown_loc,delalloc
  14:   524272..  524287:   26379440..  26379455:     16:   26628080: last,unwritten,eof
x: 3 extents found`;
  expect(parseFilefrag(output)).toEqual([
    { start: 0, end: 258 * 4096 },
    { start: 25_600 * 4096, end: 26_368 * 4096 },
    { start: 524_272 * 4096, end: 524_288 * 4096 },
  ]);
});

it('widens extents to whole blocks within the file, without overlap', () => {
  expect(
    alignedExtents(
      [
        { start: 70_000, end: 80_000 },
        { start: 4096, end: 8192 },
        { start: 190_000, end: 204_800 },
      ],
      200_000,
    ),
  ).toEqual([{ start: 0, end: 200_000 }]);
  expect(
    alignedExtents(
      [
        { start: 300_000, end: 300_001 },
        { start: 5, end: 6 },
      ],
      1_000_000,
    ),
  ).toEqual([
    { start: 0, end: 65_536 },
    { start: 262_144, end: 327_680 },
  ]);
});

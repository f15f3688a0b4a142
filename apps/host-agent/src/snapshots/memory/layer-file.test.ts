import { createHash } from 'node:crypto';
import { open, readFile, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openLayer, PAGE_BYTES } from './layer-file.ts';
import { LayerWriter } from './layer-writer.ts';
import { pageOf, writeLayer } from './test-layers.ts';

const MEMORY_PAGES = 64;
const MEMORY_BYTES = MEMORY_PAGES * PAGE_BYTES;

let directory: TemporaryDirectory;
let path: string;
beforeEach(async () => {
  directory = await temporaryDirectory();
  path = join(directory.path, 'layer');
  await writeLayer(
    path,
    MEMORY_PAGES,
    new Map([
      [3, 1],
      [4, 2],
      [5, 0],
      [6, 0],
      [63, 3],
    ]),
  );
});
afterEach(() => directory[Symbol.asyncDispose]());

const runsOf = async (memoryBytes = MEMORY_BYTES) => {
  const layer = await openLayer(path, memoryBytes);
  await layer[Symbol.asyncDispose]();
  return layer.runs;
};

it('has the bytes that its description says', async () => {
  const bytes = await readFile(path);
  expect(bytes.subarray(0, 40).toString('hex')).toBe(
    [
      '465553454c415952', // FUSELAYR
      '01000000', // version
      '00100000', // page size
      '0000040000000000', // memory
      '0300000000000000', // pages of data
      '03000000', // runs
      '00000000',
    ].join(''),
  );
  expect(bytes.subarray(40, 4096)).toEqual(Buffer.alloc(4056));
  expect(bytes.subarray(4096, 4096 * 4)).toEqual(Buffer.concat([pageOf(1), pageOf(2), pageOf(3)]));
  expect(bytes.subarray(4096 * 4).toString('hex')).toBe(
    ['03000000', '02000000', '01000000', '05000000', '02000000', '02000000', '3f000000', '01000000', '01000000'].join(
      '',
    ),
  );
  expect(createHash('sha256').update(bytes).digest('hex')).toMatchInlineSnapshot(
    `"ffdc71831a39bf28c369ee8014a5dcc21993233c4e663aa0d56b9d6af78d7b14"`,
  );
});

it('gives back its runs, and where their pages are', async () => {
  expect(await runsOf()).toEqual([
    { firstPage: 3, pages: 2, kind: 'data', offset: 4096 },
    { firstPage: 5, pages: 2, kind: 'zero', offset: 3 * 4096 },
    { firstPage: 63, pages: 1, kind: 'data', offset: 3 * 4096 },
  ]);
});

it('may be empty', async () => {
  const empty = join(directory.path, 'empty');
  await writeLayer(empty, MEMORY_PAGES, new Map());
  path = empty;
  expect(await runsOf()).toEqual([]);
});

it('is not left behind when writing it fails, and never replaces a file', async () => {
  const other = join(directory.path, 'other');
  const failing = LayerWriter.write(other, MEMORY_BYTES, async (layer) => {
    await layer.append(0, pageOf(1), () => true);
    throw new Error('no more');
  });
  await expect(failing).rejects.toThrow('no more');
  await expect(stat(other)).rejects.toMatchObject({ code: 'ENOENT' });
  await expect(writeLayer(path, MEMORY_PAGES, new Map())).rejects.toMatchObject({ code: 'EEXIST' });
  expect(await runsOf()).toHaveLength(3);
});

describe('a damaged layer is refused', () => {
  const refused = () => expect(runsOf()).rejects.toMatchObject({ code: 'integrity_error' });

  const TABLE = 4096 * 4;
  const u32 = (...values: number[]) => {
    const bytes = Buffer.alloc(values.length * 4);
    for (const [index, value] of values.entries()) bytes.writeUInt32LE(value, index * 4);
    return bytes;
  };
  it.each<[string, number, Buffer]>([
    ['of another magic', 0, Buffer.from('G')],
    ['of another version', 8, u32(2)],
    ['of another page size', 12, u32(8192)],
    ['of page size 0', 12, u32(0)],
    ['of a larger memory', 16, u32(0x80000)],
    ['of an immense memory', 20, u32(0xffff_ffff)],
    ['with one page less', 24, u32(2)],
    ['with one page more', 24, u32(4)],
    ['with a multitude of pages', 24, u32(0xffff_ffff, 0xffff_ffff)],
    ['with one run less', 32, u32(2)],
    ['with one run more', 32, u32(4)],
    ['with a multitude of runs', 32, u32(0xffff_ffff)],
    ['with no runs', 32, u32(0)],
    ['with something after its header', 36, u32(1)],
    ['with something at the end of its header', 4095, Buffer.from('x')],
    ['with a run of no pages', TABLE + 4, u32(0)],
    ['with a run of too many pages', TABLE + 4, u32(0xffff_ffff)],
    ['with a run over the next', TABLE + 4, u32(3)],
    ['with a shorter run', TABLE + 4, u32(1)],
    ['with a run of an unknown kind', TABLE + 8, u32(3)],
    ['with a run of kind 0', TABLE + 8, u32(0)],
    ['with data taken for zero', TABLE + 8, u32(2)],
    ['with zero taken for data', TABLE + 20, u32(1)],
    ['with a run before the one before', TABLE + 24, u32(0)],
    ['with a run beyond the memory', TABLE + 24, u32(64)],
    ['with a run that ends beyond the memory', TABLE + 28, u32(2)],
    ['with a run far beyond the memory', TABLE + 24, u32(0xffff_ffff)],
  ])('%s', async (_, offset, bytes) => {
    const handle = await open(path, 'r+');
    await handle.write(bytes, 0, bytes.length, offset);
    await handle.close();
    await refused();
  });

  it('cut at any place', async () => {
    const whole = await readFile(path);
    for (const size of [0, 1, 8, 35, 4095, 4096, 8191, TABLE - 1, TABLE, TABLE + 12, whole.length - 1]) {
      await truncate(path, size);
      await refused();
      await writeFile(path, whole);
    }
    expect(await runsOf()).toHaveLength(3);
  });

  it('with bytes after its end', async () => {
    await truncate(path, (await stat(path)).size + 1);
    await refused();
  });

  it('whose writer died before its header was there', async () => {
    const handle = await open(path, 'r+');
    await handle.write(Buffer.alloc(4096), 0, 4096, 0);
    await handle.close();
    await refused();
  });

  it('when it is of a memory of another size', async () => {
    await expect(runsOf(MEMORY_BYTES * 2)).rejects.toMatchObject({ code: 'integrity_error' });
  });
});

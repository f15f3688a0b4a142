import { readdir, readFile, rm, stat, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import fc from 'fast-check';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { writeFlatMemory } from './flat-memory.ts';
import { writeDifference } from './layer-difference.ts';
import { PAGE_BYTES } from './layer-file.ts';
import { type MemoryFiles, MemoryView } from './memory-view.ts';
import { memoryOf, type Pages, writeBase, writeLayer } from './test-layers.ts';

/** More than one piece. */
const MEMORY_PAGES = 600;

let directory: TemporaryDirectory;
beforeEach(async () => {
  directory = await temporaryDirectory();
});
afterEach(() => directory[Symbol.asyncDispose]());

/** Runs of pages, some of them zero: neighbours that touch, gaps of every size, pieces that are full. */
const pages: fc.Arbitrary<Pages> = fc
  .array(
    fc.record({
      first: fc.nat(MEMORY_PAGES - 1),
      length: fc.oneof(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 400 })),
      byte: fc.nat(3),
    }),
    { maxLength: 8 },
  )
  .map((runs) => {
    const all = new Map<number, number>();
    for (const { first, length, byte } of runs)
      for (let page = first; page < Math.min(first + length, MEMORY_PAGES); page++) all.set(page, byte);
    return all;
  });
const stack = fc.array(pages, { maxLength: 4 });

let files = 0;
async function filesOf(base: Pages, layers: readonly Pages[]): Promise<MemoryFiles> {
  const number = files++;
  const memoryPath = join(directory.path, `${number}-memory`);
  await writeBase(memoryPath, MEMORY_PAGES, base);
  const layerPaths = layers.map((_, index) => join(directory.path, `${number}-layer-${index}`));
  for (const [index, path] of layerPaths.entries()) await writeLayer(path, MEMORY_PAGES, layers[index] ?? new Map());
  return { memoryPath, layerPaths };
}

async function contentOf(memory: MemoryFiles): Promise<Buffer> {
  const view = await MemoryView.open(memory);
  try {
    const bytes = Buffer.alloc(view.sizeBytes, 'x');
    await view.read(bytes, 0);
    return bytes;
  } finally {
    await view[Symbol.asyncDispose]();
  }
}

it('is the base with every layer over it, the newest last', async () => {
  await fc.assert(
    fc.asyncProperty(pages, stack, async (base, layers) => {
      const bytes = await contentOf(await filesOf(base, layers));
      expect(bytes.equals(memoryOf(MEMORY_PAGES, [base, ...layers]))).toBe(true);
    }),
    { numRuns: 50 },
  );
});

it('gives any range of bytes', async () => {
  const range = fc.record({ from: fc.nat(MEMORY_PAGES * PAGE_BYTES), length: fc.nat(3 * PAGE_BYTES) });
  await fc.assert(
    fc.asyncProperty(pages, stack, fc.array(range, { maxLength: 8 }), async (base, layers, ranges) => {
      const view = await MemoryView.open(await filesOf(base, layers));
      const expected = memoryOf(MEMORY_PAGES, [base, ...layers]);
      try {
        for (const { from, length } of ranges) {
          const part = Buffer.alloc(Math.min(length, view.sizeBytes - from));
          await view.read(part, from);
          expect(part.equals(expected.subarray(from, from + part.length))).toBe(true);
        }
      } finally {
        await view[Symbol.asyncDispose]();
      }
    }),
    { numRuns: 30 },
  );
});

it('copies the pages of all layers once each, ascending', async () => {
  await fc.assert(
    fc.asyncProperty(stack, async (layers) => {
      const view = await MemoryView.open(await filesOf(new Map(), layers));
      const copied = Buffer.alloc(view.sizeBytes);
      const order: number[] = [];
      try {
        await view.stack.copyTo(async (bytes, firstPage) => {
          for (let page = 0; page < bytes.length / PAGE_BYTES; page++) order.push(firstPage + page);
          bytes.copy(copied, firstPage * PAGE_BYTES);
        });
      } finally {
        await view[Symbol.asyncDispose]();
      }
      expect(copied.equals(memoryOf(MEMORY_PAGES, layers))).toBe(true);
      const wanted = [...new Set(layers.flatMap((each) => [...each.keys()]))].sort((one, other) => one - other);
      expect(order).toEqual(wanted);
    }),
    { numRuns: 30 },
  );
});

it('differs from another over the same base by a layer that turns that one into it', async () => {
  await fc.assert(
    fc.asyncProperty(pages, stack, stack, async (base, older, newer) => {
      const { memoryPath, layerPaths: olderPaths } = await filesOf(base, older);
      const { layerPaths: newerPaths } = await filesOf(base, newer);
      const path = join(directory.path, `${files++}-difference`);
      const from = await MemoryView.open({ memoryPath, layerPaths: olderPaths });
      const to = await MemoryView.open({ memoryPath, layerPaths: newerPaths });
      try {
        const { dataPages, zeroPages } = await writeDifference({ from, to, path });
        const turned = await contentOf({ memoryPath, layerPaths: [...olderPaths, path] });
        const expected = memoryOf(MEMORY_PAGES, [base, ...newer]);
        expect(turned.equals(expected)).toBe(true);
        const before = memoryOf(MEMORY_PAGES, [base, ...older]);
        let changed = 0;
        for (let at = 0; at < expected.length; at += PAGE_BYTES) if (expected[at] !== before[at]) changed += 1;
        expect(dataPages + zeroPages).toBe(changed);
      } finally {
        await from[Symbol.asyncDispose]();
        await to[Symbol.asyncDispose]();
      }
    }),
    { numRuns: 50 },
  );
});

it('makes a flat file of the same bytes, and changes none of those that it is made from', async () => {
  await fc.assert(
    fc.asyncProperty(pages, stack, async (base, layers) => {
      const files = await filesOf(base, layers);
      const path = join(directory.path, 'flat');
      await writeFlatMemory(files, path);
      expect((await readFile(path)).equals(memoryOf(MEMORY_PAGES, [base, ...layers]))).toBe(true);
      expect((await readFile(files.memoryPath)).equals(memoryOf(MEMORY_PAGES, [base]))).toBe(true);
      await rm(path);
    }),
    { numRuns: 10 },
  );
});

it('leaves nothing of a flat file that was broken off, or has a damaged layer', async () => {
  const files = await filesOf(new Map([[0, 1]]), [new Map([[1, 1]])]);
  const before = await readdir(directory.path);
  const path = join(directory.path, 'flat');
  const signal = AbortSignal.abort(new Error('not wanted any more'));
  await expect(writeFlatMemory(files, path, signal)).rejects.toThrow('not wanted any more');
  await truncate(files.layerPaths[0] ?? '', 5_000);
  await expect(writeFlatMemory(files, path)).rejects.toMatchObject({ code: 'integrity_error' });
  expect(await readdir(directory.path)).toEqual(before);
});

it('leaves no file of a difference that was broken off', async () => {
  const { memoryPath, layerPaths } = await filesOf(new Map(), [new Map([[1, 1]])]);
  const from = await MemoryView.open({ memoryPath, layerPaths: [] });
  const to = await MemoryView.open({ memoryPath, layerPaths });
  const path = join(directory.path, 'difference');
  const signal = AbortSignal.abort(new Error('not wanted any more'));
  await expect(writeDifference({ from, to, path }, signal)).rejects.toThrow('not wanted any more');
  await expect(stat(path)).rejects.toMatchObject({ code: 'ENOENT' });
  await from[Symbol.asyncDispose]();
  await to[Symbol.asyncDispose]();
});

it('is refused when its base is cut, or a layer is of another memory', async () => {
  const { memoryPath, layerPaths } = await filesOf(new Map(), [new Map([[1, 1]])]);
  const cut = join(directory.path, 'cut');
  await writeBase(cut, MEMORY_PAGES - 1, new Map());
  await expect(MemoryView.open({ memoryPath: cut, layerPaths })).rejects.toMatchObject({ code: 'integrity_error' });
  const [layerPath = ''] = layerPaths;
  await expect(MemoryView.open({ memoryPath: layerPath, layerPaths: [] })).rejects.toMatchObject({
    code: 'integrity_error',
  });
  await expect(MemoryView.open({ memoryPath, layerPaths: [memoryPath] })).rejects.toMatchObject({
    code: 'integrity_error',
  });
});

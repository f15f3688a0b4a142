import { link, mkdir, readdir, readFile, stat, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { DEVICE_FILE, layersAmong, MEMORY_FILE, newLayerName, openMemory } from './machine-state.ts';
import { memoryOf, type Pages, writeBase, writeLayer } from './memory/test-layers.ts';
import { MAX_LAYERS, type StoredState, storeDifference } from './store-difference.ts';

const MEMORY_PAGES = 64;
const base: Pages = new Map([
  [0, 9],
  [50, 9],
]);
const never = new AbortController().signal;

let directory: TemporaryDirectory;
let states: number;
beforeEach(async () => {
  directory = await temporaryDirectory();
  states = 0;
  await writeBase(join(directory.path, 'base'), MEMORY_PAGES, base);
});
afterEach(() => directory[Symbol.asyncDispose]());

const filled = (first: number, pages: number, byte: number): [number, number][] =>
  Array.from({ length: pages }, (_, index) => [first + index, byte]);

/** As captured: all that differs from the base, in one layer for each of `layers`. */
async function captured(layers: readonly Pages[], basePath = join(directory.path, 'base')): Promise<StoredState> {
  const own = join(directory.path, `state-${states++}`);
  await mkdir(own);
  await link(basePath, join(own, MEMORY_FILE));
  const names = layers.map(() => newLayerName());
  for (const [index, pages] of layers.entries()) await writeLayer(join(own, names[index] ?? ''), MEMORY_PAGES, pages);
  return { directory: own, names: [MEMORY_FILE, ...names, DEVICE_FILE] };
}

async function contentOf({ directory: own, names }: StoredState): Promise<Buffer> {
  await using memory = await openMemory(own, names);
  const bytes = Buffer.alloc(memory.sizeBytes);
  await memory.read(bytes, 0);
  return bytes;
}

const earlierPages: Pages = new Map([...filled(10, 30, 1), [60, 2]]);
/** One page changed, one was zeroed, one is the base's again, one is new. */
const laterPages: Pages = new Map([...filled(10, 30, 1), [10, 3], [11, 0], [50, 9], [55, 4], [60, 2]]);

it('turns a whole layer into the layers of the one before and what has changed', async () => {
  const earlier = await captured([earlierPages]);
  const own = await captured([laterPages]);
  const names = (await storeDifference(own, earlier, never)) ?? [];
  const layers = layersAmong(names);
  expect(layers).toHaveLength(2);
  expect(layers[0]).toBe(layersAmong(earlier.names)[0]);
  expect(names).toEqual([MEMORY_FILE, ...layers, DEVICE_FILE]);
  const expected = memoryOf(MEMORY_PAGES, [base, laterPages]);
  expect((await contentOf({ ...own, names })).equals(expected)).toBe(true);
  // What counted before is still there, for those who read it.
  expect((await contentOf(own)).equals(expected)).toBe(true);
  const [sharedSize, ownSize] = await Promise.all(
    layers.map(async (name) => (await stat(join(own.directory, name))).size),
  );
  expect(ownSize).toBeLessThan((sharedSize ?? 0) / 2);
});

it('works again after an attempt that was cut off', async () => {
  const earlier = await captured([earlierPages]);
  const own = await captured([laterPages]);
  await storeDifference(own, earlier, never);
  const names = (await storeDifference(own, earlier, never)) ?? [];
  expect((await contentOf({ ...own, names })).equals(memoryOf(MEMORY_PAGES, [base, laterPages]))).toBe(true);
});

it('carries on from one that is a difference itself, until there would be too many layers', async () => {
  let earlier = await captured([new Map(filled(0, 40, 1))]);
  for (let depth = 2; depth <= MAX_LAYERS; depth++) {
    const own = await captured([new Map([...filled(0, 40, 1), [41, depth]])]);
    const names = (await storeDifference(own, earlier, never)) ?? [];
    expect(layersAmong(names)).toHaveLength(depth);
    earlier = { ...own, names };
  }
  const own = await captured([new Map([...filled(0, 40, 1), [41, 99]])]);
  expect(await storeDifference(own, earlier, never)).toBeUndefined();
});

it('leaves a layer whole that has little in common, is over another base, or comes first', async () => {
  const earlier = await captured([earlierPages]);
  const unlike = await captured([new Map(filled(10, 30, 7))]);
  const otherBase = join(directory.path, 'other');
  await writeBase(otherBase, MEMORY_PAGES, base);
  const elsewhere = await captured([laterPages], otherBase);
  for (const own of [unlike, elsewhere]) {
    const before = await readdir(own.directory);
    expect(await storeDifference(own, earlier, never)).toBeUndefined();
    expect(await readdir(own.directory)).toEqual(before);
  }
  expect(await storeDifference(await captured([laterPages]), await captured([]), never)).toBeUndefined();
});

it('makes nothing when it is aborted or finds damage, and changes nothing of the one before', async () => {
  const earlier = await captured([earlierPages]);
  const own = await captured([laterPages]);
  const before = await readdir(own.directory);
  const stopped = storeDifference(own, earlier, AbortSignal.abort(new Error('not wanted any more')));
  await expect(stopped).rejects.toThrow('not wanted any more');
  expect(await readdir(own.directory)).toEqual(before);
  const path = join(earlier.directory, layersAmong(earlier.names)[0] ?? '');
  await truncate(path, 9_000);
  const damaged = await readFile(path);
  await expect(storeDifference(own, earlier, never)).rejects.toMatchObject({ code: 'integrity_error' });
  expect(await readdir(own.directory)).toEqual(before);
  expect(await readFile(path)).toEqual(damaged);
});

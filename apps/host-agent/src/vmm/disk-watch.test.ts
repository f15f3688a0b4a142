import { link, mkdir, open, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { isWithin } from './disk-watch.ts';

const limits = { entries: 4, bytes: 1_000_000 };
const large = 'x'.repeat(1_100_000);
let directory: TemporaryDirectory;
const at = (name: string) => join(directory.path, 'root', name);
const watched = () => ({ path: at('') });
const owner = { pid: process.pid, uid: process.getuid?.() ?? 0 };

beforeEach(async () => {
  directory = await temporaryDirectory();
  await mkdir(at(''));
  await writeFile(at('small'), 'x');
});
afterEach(() => directory[Symbol.asyncDispose]());

it('a VMM has written too much when it is large, or many, or a directory', async () => {
  expect(await isWithin(watched(), limits)).toBe(true);
  await mkdir(at('sub'));
  expect(await isWithin(watched(), limits)).toBe(false);
  expect(await isWithin({ ...watched(), known: { sub: {} } }, limits)).toBe(true);
  await writeFile(at('sub/large'), large);
  expect(await isWithin({ ...watched(), known: { sub: {} } }, limits)).toBe(false);
  await rm(at('sub'), { recursive: true });
  for (const name of ['one', 'two', 'three']) await writeFile(at(name), '');
  expect(await isWithin(watched(), limits)).toBe(true);
  await writeFile(at('four'), '');
  expect(await isWithin(watched(), limits)).toBe(false);
});

it('what it was given does not count, by whatever name, and nothing else by its name', async () => {
  const disk = join(directory.path, 'disk');
  await writeFile(disk, large);
  await link(disk, at('disk'));
  expect(await isWithin({ ...watched(), given: [disk] }, limits)).toBe(true);
  await rename(at('disk'), at('other'));
  expect(await isWithin({ ...watched(), given: [disk] }, limits)).toBe(true);
  await writeFile(at('disk'), large);
  expect(await isWithin({ ...watched(), given: [disk] }, limits)).toBe(false);
});

it('the files of another user do not count', async () => {
  await writeFile(at('image'), large);
  expect(await isWithin({ ...watched(), owner }, limits)).toBe(false);
  expect(await isWithin({ ...watched(), owner: { ...owner, uid: owner.uid + 1 } }, limits)).toBe(true);
});

it('what it has removed and still has open counts', async () => {
  const file = await open(at('hidden'), 'w');
  await file.writeFile(large);
  await rm(at('hidden'));
  expect(await isWithin(watched(), limits)).toBe(true);
  expect(await isWithin({ ...watched(), owner }, limits)).toBe(false);
  await file.close();
  expect(await isWithin({ ...watched(), owner }, limits)).toBe(true);
});

it('a link in the place of a directory leads nowhere', async () => {
  await mkdir(join(directory.path, 'elsewhere'));
  await writeFile(join(directory.path, 'elsewhere', 'large'), large);
  await symlink(join(directory.path, 'elsewhere'), at('run'));
  expect(await isWithin({ ...watched(), known: { run: {} } }, limits)).toBe(true);
});

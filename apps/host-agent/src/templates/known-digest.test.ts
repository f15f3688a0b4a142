import { link, rename, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { knownDigest } from './known-digest.ts';
import { sparseDigest } from './sparse-digest.ts';

let directory: TemporaryDirectory;
let path: string;
beforeEach(async () => {
  directory = await temporaryDirectory();
  path = join(directory.path, 'file');
  await writeFile(path, 'content');
});
afterEach(() => directory[Symbol.asyncDispose]());

it('is that of the bytes, and the same by every name of the file', async () => {
  const first = await knownDigest(path);
  expect(first.digest).toBe(await sparseDigest(path));
  const other = join(directory.path, 'other');
  await link(path, other);
  expect(await knownDigest(other)).toEqual(first);
});

it('is computed anew when the file has been written or replaced since', async () => {
  const first = await knownDigest(path);
  await writeFile(path, 'changed');
  await utimes(path, 1, 1);
  const second = await knownDigest(path);
  expect(second.digest).toBe(await sparseDigest(path));
  const other = join(directory.path, 'other');
  await writeFile(other, 'another');
  await utimes(other, 1, 1);
  await rename(other, path);
  const third = await knownDigest(path);
  expect(third.digest).toBe(await sparseDigest(path));
  expect(new Set([first.digest, second.digest, third.digest]).size).toBe(3);
});

it('stops when it is aborted', async () => {
  await expect(knownDigest(path, AbortSignal.abort(new Error('not wanted any more')))).rejects.toThrow('not wanted');
});

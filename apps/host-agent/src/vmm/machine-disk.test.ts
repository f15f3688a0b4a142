import { execFile } from 'node:child_process';
import { mkdir, open, symlink, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { endSpawner } from './children.ts';
import { createWritableDisk, faultOfDisk } from './machine-disk.ts';

const STORAGE_GB = 1 / 16;
const BYTES = STORAGE_GB * 1024 ** 3;
let directory: TemporaryDirectory;
const disk = () => join(directory.path, 'disk');
beforeEach(async () => {
  directory = await temporaryDirectory();
});
afterEach(async () => {
  await directory[Symbol.asyncDispose]();
  await endSpawner();
});

it('a disk is as it was made, empty or full', async () => {
  await createWritableDisk(disk(), STORAGE_GB);
  expect(await faultOfDisk(disk(), STORAGE_GB)).toBeUndefined();
  await promisify(execFile)('fallocate', ['--length', String(BYTES), disk()]);
  expect(await faultOfDisk(disk(), STORAGE_GB)).toBeUndefined();
});

it('a disk that has become longer, in sight or behind its end, or something else, is none', async () => {
  await createWritableDisk(disk(), STORAGE_GB);
  await truncate(disk(), BYTES + 1);
  expect(await faultOfDisk(disk(), STORAGE_GB)).toBe(`is ${BYTES + 1} bytes long, not ${BYTES}`);
  const behind = join(directory.path, 'behind');
  await (await open(behind, 'w')).close();
  await promisify(execFile)('fallocate', ['--keep-size', '--length', String(2 * BYTES), behind]);
  expect(await faultOfDisk(behind, STORAGE_GB)).toContain('takes');
  await symlink(behind, join(directory.path, 'link'));
  await mkdir(join(directory.path, 'directory'));
  for (const name of ['link', 'directory'])
    expect(await faultOfDisk(join(directory.path, name), STORAGE_GB)).toBe('is no plain file');
});

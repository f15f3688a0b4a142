import { open, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { boundFile, readTail } from './log-file.ts';

let directory: TemporaryDirectory;
let path: string;
beforeEach(async () => {
  directory = await temporaryDirectory();
  path = join(directory.path, 'log');
});
afterEach(() => directory[Symbol.asyncDispose]());

it('cuts a file that grew too large down to its end, and its writer goes on behind that', async () => {
  const writer = await open(path, 'a');
  await writer.write(`${'x'.repeat(200_000)}last line\n`);
  await boundFile(path, 100_000);
  await writer.write('next line\n');
  await writer.close();
  const text = await readFile(path, 'utf8');
  expect(text.length).toBeLessThan(70_000);
  expect(text.endsWith('xlast line\nnext line\n')).toBe(true);
});

it('leaves a small file alone, and one that is not there', async () => {
  await writeFile(path, 'small');
  await boundFile(path, 100);
  expect(await readFile(path, 'utf8')).toBe('small');
  await boundFile(join(directory.path, 'none'), 100);
});

it('shows the end of a file as text for people', async () => {
  await writeFile(path, `${'x'.repeat(10_000)}\u001b[31mred\u0000\n`);
  expect(await readTail(path, 11)).toBe('x[31mred\n');
  expect(await readTail(join(directory.path, 'none'))).toBe('');
});

import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { announceDataDirectory, goneDataDirectories } from './data-directories.ts';

let directory: TemporaryDirectory;
let data: string;
let announced: string;
const gone = async () => (await goneDataDirectories(announced)).map(({ path }) => path);

beforeEach(async () => {
  directory = await temporaryDirectory();
  data = join(directory.path, 'host');
  announced = join(directory.path, 'announced');
  await mkdir(data);
});
afterEach(() => directory[Symbol.asyncDispose]());

/** As a host agent that was killed has left it. */
async function ofTheDead(): Promise<void> {
  await announceDataDirectory(data, announced);
  const [name = ''] = await readdir(announced);
  const text = await readFile(join(announced, name), 'utf8');
  const record: { holder: { description: string } } = JSON.parse(text);
  record.holder.description = `${record.holder.description.trim()}0\n`; // the number is another process's by now
  await writeFile(join(announced, name), JSON.stringify(record));
}

it('is gone when it does not exist and nobody uses it any more', async () => {
  await ofTheDead();
  expect(await gone()).toEqual([]);
  await rm(data, { recursive: true });
  expect(await gone()).toEqual([data]);
});

it('is not gone while the host agent that uses it runs, whatever became of its files', async () => {
  await announceDataDirectory(data, announced);
  await rm(data, { recursive: true });
  expect(await gone()).toEqual([]);
});

it('is announced no more when a host agent leaves without VMs, and on when there are some', async () => {
  const announcement = await announceDataDirectory(data, announced);
  await mkdir(join(data, 'vms', 'one'), { recursive: true });
  await announcement[Symbol.asyncDispose]();
  expect(await readdir(announced)).toHaveLength(1);
  await rm(join(data, 'vms', 'one'), { recursive: true });
  await announcement[Symbol.asyncDispose]();
  expect(await readdir(announced)).toEqual([]);
});

it('is nothing else that lies there', async () => {
  await mkdir(announced);
  await writeFile(join(announced, '0123abcd'), '{"path": 1}');
  await writeFile(join(announced, '0123abcd.7'), '{}');
  expect(await gone()).toEqual([]);
});

import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { VmmProcess } from './process.ts';

let directory: TemporaryDirectory;
let started: VmmProcess | undefined;
beforeEach(async () => {
  directory = await temporaryDirectory();
});
afterEach(async () => {
  await started?.kill();
  await directory[Symbol.asyncDispose]();
});

async function sleeper(): Promise<VmmProcess> {
  started = await VmmProcess.spawn({
    program: '/usr/bin/sleep',
    args: ['600'],
    directory: directory.path,
    stdio: ['ignore', 'ignore', 'ignore'],
  });
  return started;
}

it('is a session of its own, and is gone once kill resolves', async () => {
  const process_ = await sleeper();
  const fields = (await readFile(`/proc/${process_.pid}/stat`, 'utf8')).split(') ')[1]?.split(' ') ?? [];
  expect(Number(fields[3])).toBe(process_.pid);
  await process_.kill();
  expect(await process_.exited).toEqual({ code: null, signal: 'SIGKILL' });
  expect(await VmmProcess.adopt(directory.path, 'sleep')).toBeUndefined();
});

it('reports how a program ended by itself', async () => {
  const ended = await VmmProcess.spawn({
    program: '/usr/bin/sh',
    args: ['-c', 'sleep 0.2; exit 3'],
    directory: directory.path,
    stdio: ['ignore', 'ignore', 'ignore'],
  });
  expect(await ended.exited).toEqual({ code: 3, signal: null });
  await ended.kill();
});

it('fails when the program is not there', async () => {
  const options = { args: [], directory: directory.path, stdio: ['ignore', 'ignore', 'ignore'] as const };
  await expect(VmmProcess.spawn({ program: '/no/such/program', ...options })).rejects.toMatchObject({
    code: 'unavailable',
  });
});

it("is adopted by its directory, with or without its identity file, and only under its program's name", async () => {
  const process_ = await sleeper();
  expect((await VmmProcess.adopt(directory.path, 'sleep'))?.pid).toBe(process_.pid);
  expect(await VmmProcess.adopt(directory.path, 'qemu')).toBeUndefined();
  await rm(join(directory.path, 'vmm.json'));
  expect((await VmmProcess.adopt(directory.path, 'sleep'))?.pid).toBe(process_.pid);
});

it('ends when it is killed as adopted, and says so to whoever waits', async () => {
  const process_ = await sleeper();
  const adopted = await VmmProcess.adopt(directory.path, 'sleep');
  await adopted?.kill();
  await adopted?.exited;
  await process_.exited;
});

it('is never another process that got its number, nor one of before the machine was started anew', async () => {
  await sleeper();
  const path = join(directory.path, 'vmm.json');
  const identity = JSON.parse(await readFile(path, 'utf8')) as Record<string, unknown>;
  await using other = await temporaryDirectory();
  for (const change of [{ startTicks: '1' }, { bootId: 'another' }, { pid: process.pid }, { pid: 4_000_000 }]) {
    await writeFile(join(other.path, 'vmm.json'), JSON.stringify({ ...identity, ...change }));
    expect(await VmmProcess.adopt(other.path, 'sleep')).toBeUndefined();
  }
});

import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { lockDataDirectory } from './data-lock.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'fuse-lock-'));
});
afterEach(() => rm(directory, { recursive: true }));

describe('lockDataDirectory', () => {
  it('is had by one at a time, and again once it was given back', async () => {
    const lock = await lockDataDirectory(directory);
    await expect(lockDataDirectory(directory)).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringContaining(`process id ${process.pid}`),
    });
    await lock[Symbol.asyncDispose]();
    await (await lockDataDirectory(directory))[Symbol.asyncDispose]();
  });

  it('takes over from a process that is gone, also when its number is used again', async () => {
    const path = join(directory, 'lock');
    for (const stale of ['', '4194304 x 1\n', `${process.pid} another-boot 1\n`, 'garbage']) {
      await writeFile(path, stale);
      const lock = await lockDataDirectory(directory);
      expect(await readFile(path, 'utf8')).toMatch(new RegExp(`^${process.pid} `));
      await lock[Symbol.asyncDispose]();
    }
  });

  it('has one winner when many take over at once', async () => {
    await writeFile(join(directory, 'lock'), '4194304 x 1\n');
    const results = await Promise.allSettled(Array.from({ length: 20 }, () => lockDataDirectory(directory)));
    expect(results.filter(({ status }) => status === 'fulfilled').length).toBe(1);
  });
});

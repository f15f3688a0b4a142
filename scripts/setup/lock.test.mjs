import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { withSetupLock } from './lock.mjs';

it('lets one set-up work at a time in a home, and the next when that has ended or failed', async () => {
  const home = await mkdtemp(join(tmpdir(), 'fuse-lock-'));
  const { signal } = new AbortController();
  let working = 0;
  let most = 0;
  const work = async () => {
    most = Math.max(most, ++working);
    await new Promise((resolve) => setTimeout(resolve, 20));
    working--;
    throw new Error('on purpose');
  };
  const ends = await Promise.allSettled([1, 2, 3].map(() => withSetupLock(home, signal, work)));
  expect(ends.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
  expect(most).toBe(1);
  await rm(home, { recursive: true });
});

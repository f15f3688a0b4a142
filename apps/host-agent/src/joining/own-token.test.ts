import { stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryDirectory } from '@fuse/testing';
import { expect, it } from 'vitest';
import { ownToken } from './own-token.ts';

it('is made once and kept for this host agent alone', async () => {
  await using directory = await temporaryDirectory();
  const token = await ownToken(directory.path);
  expect(token).toMatch(/^[A-Za-z0-9_-]{43}$/);
  expect(await ownToken(directory.path)).toBe(token);
  expect((await stat(join(directory.path, 'token'))).mode & 0o777).toBe(0o600);
});

it('is not replaced when its file is damaged', async () => {
  await using directory = await temporaryDirectory();
  await writeFile(join(directory.path, 'token'), '');
  await expect(ownToken(directory.path)).rejects.toThrow('does not hold a token');
});

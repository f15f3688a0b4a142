import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryDirectory } from '@fuse/testing';
import { expect, it } from 'vitest';
import { onDiskLoss } from './disk-loss.ts';

const MIB = 1_048_576;

it('has everybody look each time that much more is taken of the disk, until they want no more', async () => {
  await using directory = await temporaryDirectory();
  const looks = { one: 0, other: 0 };
  const stop = (['one', 'other'] as const).map((name) =>
    onDiskLoss(directory.path, () => void looks[name]++, 24 * MIB),
  );
  // How much is free is known from here on; others may write here, too.
  const before = { ...looks };
  await expect
    .poll(async () => {
      await writeFile(join(directory.path, `file-${Math.random()}`), Buffer.alloc(8 * MIB, 'x'), { flush: true });
      return looks.one > before.one + 1 && looks.other > before.other + 1;
    })
    .toBe(true);
  for (const end of stop) end();
  await rm(directory.path, { recursive: true });
});

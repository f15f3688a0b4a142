import { temporaryDirectory } from '@fuse/testing';
import { expect, it } from 'vitest';
import { Fences } from './fences.ts';

it('refuses a fence that is older than one which was seen, of each cluster by itself, restarts included', async () => {
  await using directory = await temporaryDirectory();
  const fences = await Fences.open(directory.path);
  await fences.check(undefined);
  await fences.check('3 one');
  await fences.check('3 one');
  await fences.check('1 other');
  await expect(fences.check('2 one')).rejects.toMatchObject({ code: 'conflict', details: { reason: 'stale_fence' } });
  const again = await Fences.open(directory.path);
  await expect(again.check('2 one')).rejects.toMatchObject({ code: 'conflict' });
  await again.check('4 one');
  for (const header of ['', '4', 'four one', '4 one two', '-1 one'])
    await expect(again.check(header), header).rejects.toMatchObject({ code: 'invalid_argument' });
});

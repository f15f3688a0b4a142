import { readdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { moduleName, neededModules } from './kernel-modules.mjs';
import { manifestPath } from './paths.mjs';

describe('kernel modules of the initramfs', () => {
  it('come each after all that they need', async () => {
    const directory = dirname(JSON.parse(await readFile(manifestPath, 'utf8')).kernel.path);
    const files = (await readdir(directory)).filter((name) => name.endsWith('.ko')).sort();
    const loaded = files.map((file) => moduleName(file).replace(/^\d+_/, ''));
    expect(loaded).toEqual(
      expect.arrayContaining(['virtio_ring', 'virtio', 'virtio_blk', 'virtio_console', 'overlay', 'erofs']),
    );
    for (const [index, file] of files.entries()) {
      for (const needed of neededModules(await readFile(join(directory, file))))
        expect(loaded.slice(0, index), `${file} needs ${needed}`).toContain(needed);
    }
  });
});

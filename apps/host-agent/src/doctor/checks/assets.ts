/** Kernel, initramfs and images as the manifest lists them. Sizes are compared, digests are not: that would read hundreds of megabytes. */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import { type Assets, loadAssets } from '../../images/assets.ts';
import { type Check, fail, ok } from '../finding.ts';

const FIX = 'npm run setup';

export const assetsCheck: Check = {
  name: 'kernel and images',
  async run({ home }) {
    let assets: Assets;
    try {
      assets = await loadAssets(join(home, 'assets', 'manifest.json'));
    } catch (error) {
      return fail(error instanceof AppError ? error.message : `the list of assets is damaged: ${error}`, FIX);
    }
    const files = [
      { path: assets.kernel.path },
      { path: assets.initramfs.path },
      ...assets.images.map(({ path, sizeBytes }) => ({ path, sizeBytes })),
    ];
    for (const file of files) {
      const size = await stat(file.path).then(
        (found) => found.size,
        () => undefined,
      );
      if (size === undefined) return fail(`${file.path} is missing`, FIX);
      if ('sizeBytes' in file && file.sizeBytes !== size)
        return fail(`${file.path} is damaged`, `rm ${file.path}; ${FIX}`);
    }
    return ok(`Linux ${assets.kernel.version}; images: ${assets.images.map((image) => image.name).join(', ')}`);
  },
};

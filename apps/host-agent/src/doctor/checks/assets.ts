/** Kernel, initramfs and images as the manifest lists them. */
import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import { findAssetDamage } from '../../images/asset-damage.ts';
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
    const damage = await findAssetDamage(assets);
    if (damage !== undefined)
      return fail(`${damage.path} is ${damage.state}`, damage.state === 'missing' ? FIX : `rm ${damage.path}; ${FIX}`);
    return ok(`Linux ${assets.kernel.version}; images: ${assets.images.map((image) => image.name).join(', ')}`);
  },
};

/** Whether the files that the manifest lists are there. Sizes are compared, digests are not: that would read hundreds of megabytes. */
import { stat } from 'node:fs/promises';
import type { Assets } from './assets.ts';

export interface AssetDamage {
  path: string;
  state: 'missing' | 'damaged';
}

/** The first file that is not as it should be. */
export async function findAssetDamage(assets: Assets): Promise<AssetDamage | undefined> {
  const files: { path: string; sizeBytes?: number }[] = [assets.kernel, assets.initramfs, ...assets.images];
  for (const { path, sizeBytes } of files) {
    const size = await stat(path).then(
      (found) => found.size,
      () => undefined,
    );
    if (size === undefined) return { path, state: 'missing' };
    if (sizeBytes !== undefined && sizeBytes !== size) return { path, state: 'damaged' };
  }
  return undefined;
}

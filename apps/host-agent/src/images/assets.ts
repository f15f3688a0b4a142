/**
 * What set-up built: kernel, initramfs and images, listed in `<FUSE_HOME>/assets/manifest.json`. Paths are absolute; every file is
 * immutable once listed (a rebuild gets another path), so a digest identifies it.
 */
import { readFile } from 'node:fs/promises';
import { AppError } from '@fuse/contract';
import { z } from 'zod';

export const ImageAsset = z.object({
  name: z.string().regex(/^[a-z0-9][a-z0-9._-]{0,62}$/),
  path: z.string(),
  /** sha256 hex of the file. */
  digest: z.string().length(64),
  sizeBytes: z.number().int(),
  description: z.string().optional(),
  /** Commands run in the guest before the template is taken, so that their files are in its page cache. */
  warm: z.array(z.array(z.string()).min(1)).default([]),
});
export type ImageAsset = z.infer<typeof ImageAsset>;

const Program = z.object({ path: z.string(), sha256: z.string().length(64) });

export const Assets = z.object({
  kernel: z.object({ path: z.string(), version: z.string(), sha256: z.string().length(64) }),
  initramfs: z.object({ path: z.string(), sha256: z.string().length(64) }),
  images: z.array(ImageAsset),
  programs: z.object({ jailer: Program, gateway: Program }),
});
export type Assets = z.infer<typeof Assets>;

export async function loadAssets(manifestPath: string): Promise<Assets> {
  let text: string;
  try {
    text = await readFile(manifestPath, 'utf8');
  } catch (cause) {
    throw new AppError('unavailable', `no kernel and images at ${manifestPath}`, {
      cause,
      hint: 'run `npm run setup` in the project to build them',
    });
  }
  const assets = Assets.safeParse(JSON.parse(text));
  if (assets.success) return assets.data;
  throw new AppError('unavailable', `${manifestPath} is of another version of Fuse`, {
    cause: assets.error,
    hint: 'run `npm run setup` in the project to bring it up to date',
  });
}

/** 400 naming the images that exist. */
export function imageNamed(assets: Assets, name: string): ImageAsset {
  const image = assets.images.find((each) => each.name === name);
  if (image !== undefined) return image;
  const known = assets.images
    .map((each) => each.name)
    .sort()
    .join(', ');
  throw new AppError('invalid_argument', `image "${name}" does not exist`, {
    details: { field: 'image', images: known },
    hint: `choose one of: ${known}`,
  });
}

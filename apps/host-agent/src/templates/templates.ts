/** Pre-booted snapshots, one per image, kernel, initramfs, driver and shape; made on first need, once. */
import { AppError } from '@fuse/contract';
import type { Shape } from '@fuse/host-protocol';
import type { Logger } from '@fuse/runtime';
import type { Assets, ImageAsset } from '../images/assets.ts';
import type { SnapshotFiles, VmmDriver } from '../vmm/driver.ts';

export interface Template {
  key: string;
  snapshot: SnapshotFiles;
  /** The writable disk of the snapshot's instant: each VM starts from its own copy (vmm/machine-disk.ts). */
  diskPath: string;
}

export interface TemplatesOptions {
  /** `<host data directory>/templates`; made when missing. */
  directory: string;
  driver: VmmDriver;
  assets: Assets;
  log: Logger;
}

export class Templates {
  constructor(_options: TemplatesOptions) {}

  /** The template of this image and shape; the first call makes it (seconds), later ones find it. A damaged one is made again. */
  async ensure(_image: ImageAsset, _shape: Shape, _signal?: AbortSignal): Promise<Template> {
    throw new AppError('unimplemented', 'templates');
  }

  /** Removes what makers that died left behind. Called at start-up. */
  async sweep(): Promise<void> {
    throw new AppError('unimplemented', 'templates');
  }
}

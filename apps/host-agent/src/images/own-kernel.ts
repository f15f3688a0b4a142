/** A kernel of the operator's in place of the one that set-up built (FUSE_KERNEL), such as one that boots under a hypervisor which a stock kernel hangs under. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { AppError } from '@fuse/contract';
import type { Assets } from './assets.ts';

/** Templates and snapshots depend on what is in it, not on its path. The modules of the initramfs must be of it, or built into it. */
export async function withOwnKernel(assets: Assets, kernelPath: string | undefined): Promise<Assets> {
  if (kernelPath === undefined) return assets;
  let kernel: Buffer;
  try {
    kernel = await readFile(kernelPath);
  } catch (cause) {
    throw new AppError('unavailable', `the kernel ${kernelPath} cannot be read`, {
      cause,
      hint: 'FUSE_KERNEL names an uncompressed kernel (vmlinux)',
    });
  }
  if (kernel.toString('latin1', 0, 4) !== '\x7fELF')
    throw new AppError('unavailable', `${kernelPath} is no uncompressed kernel`, {
      hint: 'FUSE_KERNEL names an ELF file (vmlinux), not a compressed image (bzImage, vmlinuz)',
    });
  const sha256 = createHash('sha256').update(kernel).digest('hex');
  return { ...assets, kernel: { path: kernelPath, version: `of ${kernelPath}`, sha256 } };
}

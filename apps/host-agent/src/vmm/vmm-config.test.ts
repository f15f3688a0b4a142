import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryDirectory } from '@fuse/testing';
import { describe, expect, it } from 'vitest';
import type { Assets } from '../images/assets.ts';
import { withOwnKernel } from '../images/own-kernel.ts';
import { vmmConfigFromEnv } from './vmm-config.ts';

describe('the choice of a VMM', () => {
  it('is made by the host unless it is configured', () => {
    expect(vmmConfigFromEnv({ FUSE_VMM: '', HOME: '/root' })).toMatchObject({ choice: 'auto', kernelPath: undefined });
    expect(vmmConfigFromEnv({ FUSE_VMM: 'qemu', FUSE_KERNEL: '/boot/vmlinux' })).toMatchObject({
      choice: 'qemu',
      kernelPath: '/boot/vmlinux',
    });
  });

  it('is refused by name when there is none such', () => {
    expect(() => vmmConfigFromEnv({ FUSE_VMM: 'xen' })).toThrow(/^FUSE_VMM: /);
    expect(() => vmmConfigFromEnv({ FUSE_KERNEL: 'vmlinux' })).toThrow('FUSE_KERNEL: must be an absolute path');
  });
});

describe('a kernel of the operator', () => {
  const built = { path: '/assets/vmlinux', version: '6.1', sha256: '0'.repeat(64) };
  const assets = { kernel: built } as Assets; // the rest is passed on

  it('takes the place of the one that was built, known by what is in it', async () => {
    await using directory = await temporaryDirectory('fuse-kernel-');
    const path = join(directory.path, 'vmlinux');
    await writeFile(path, '\x7fELF and so on', 'latin1');
    const { kernel } = await withOwnKernel(assets, path);
    expect(kernel).toMatchObject({ path, sha256: expect.stringMatching(/^[0-9a-f]{64}$/) });
    expect(kernel.sha256).not.toBe(built.sha256);
    expect(await withOwnKernel(assets, undefined)).toBe(assets);
  });

  it('is an uncompressed one', async () => {
    await using directory = await temporaryDirectory('fuse-kernel-');
    const path = join(directory.path, 'vmlinuz');
    await writeFile(path, 'MZ');
    await expect(withOwnKernel(assets, path)).rejects.toMatchObject({ hint: expect.stringContaining('vmlinux') });
    await expect(withOwnKernel(assets, join(directory.path, 'none'))).rejects.toThrow('cannot be read');
  });
});

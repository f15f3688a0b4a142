import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryDirectory } from '@fuse/testing';
import { describe, expect, it } from 'vitest';
import { loadConfig } from '../config.ts';
import type { Assets } from '../images/assets.ts';
import { withOwnKernel } from '../images/own-kernel.ts';
import { prepareTemplate } from '../prepare-template.ts';
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

describe('how VMMs are confined', () => {
  it('is the same for set-up and doctor as for the host agent', () => {
    expect(vmmConfigFromEnv({ FUSE_CONFINEMENT: '' }).confinement).toEqual({ mode: 'auto', uidBase: 870_000 });
    const variables = { FUSE_CONFINEMENT: 'required', FUSE_VMM_UID_BASE: '500000' };
    const { confinement } = vmmConfigFromEnv(variables);
    expect(confinement).toEqual({ mode: 'required', uidBase: 500_000 });
    expect(loadConfig({ ...variables, FUSE_HOST_TOKEN: 'a-token-that-is-long-enough' }).confinement).toEqual(
      confinement,
    );
  });

  it('is refused by name when there is no such way, before a template is made', async () => {
    expect(() => vmmConfigFromEnv({ FUSE_VMM_UID_BASE: '7' })).toThrow('FUSE_VMM_UID_BASE: must be at least 1000');
    const { signal } = new AbortController();
    await expect(prepareTemplate({ FUSE_CONFINEMENT: 'perhaps' }, signal)).rejects.toThrow(/^FUSE_CONFINEMENT: /);
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

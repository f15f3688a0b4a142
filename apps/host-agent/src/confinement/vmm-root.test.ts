import { execFile } from 'node:child_process';
import { lstat, readdir, readlink, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { endSpawner } from '../vmm/children.ts';
import { parseLdd, plainDevices, prepareVmmRoot, removeOtherVmmRoots } from './vmm-root.ts';

const contents = {
  programs: ['/usr/bin/env'],
  files: ['/usr/share/common-licenses/MPL-2.0'],
  devices: plainDevices,
  places: { files: ['/image'], directories: ['/vm'] },
};

it('finds libraries however the dynamic loader names them', () => {
  const output = [
    '/usr/bin/one:',
    '\tlinux-vdso.so.1 (0x00007ffd3)',
    '\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f0)',
    '\t/lib64/ld-linux-x86-64.so.2 (0x00007f1)',
    '/usr/bin/other:',
    '\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f2)',
  ].join('\n');
  expect(parseLdd(output)).toEqual(['/lib/x86_64-linux-gnu/libz.so.1', '/lib64/ld-linux-x86-64.so.2']);
  expect(() => parseLdd('\tlibnone.so.1 => not found')).toThrow('libnone.so.1');
});

describe.skipIf(process.geteuid?.() !== 0)('the root of a VMM', () => {
  let directory: TemporaryDirectory;
  let root: string;
  beforeAll(async () => {
    directory = await temporaryDirectory();
    root = await prepareVmmRoot(join(directory.path, 'roots'), contents);
  });
  afterAll(async () => {
    await directory[Symbol.asyncDispose]();
    await endSpawner();
  });

  it('has all that its program needs to run', async () => {
    const { stdout } = await promisify(execFile)('chroot', [root, '/usr/bin/env', '--version']);
    expect(stdout).toContain('GNU coreutils');
  });

  it('has nothing else, and nothing that changes who runs it or leads elsewhere', async () => {
    const paths = await readdir(root, { recursive: true });
    const inside = paths.filter((path) => !path.startsWith('lib') && !path.startsWith('usr/lib'));
    expect(inside.sort()).toEqual(
      [
        ...['dev', 'dev/null', 'dev/random', 'dev/urandom', 'dev/zero', 'image', 'vm'],
        ...['usr', 'usr/bin', 'usr/bin/env', 'usr/share', 'usr/share/common-licenses'],
        'usr/share/common-licenses/MPL-2.0',
      ].sort(),
    );
    for (const path of paths) {
      const { mode, uid } = await lstat(join(root, path));
      const isDevice = path.startsWith('dev/');
      expect(uid, path).toBe(0);
      expect(mode & 0o6022, path).toBe(isDevice ? 0o022 : 0);
      await expect(readlink(join(root, path)), path).rejects.toThrow();
    }
  });

  it('is made once, and again when a program has changed', async () => {
    const { ino } = await stat(root);
    const roots = join(directory.path, 'roots');
    const all = await Promise.all([1, 2, 3].map(() => prepareVmmRoot(roots, contents)));
    expect(all).toEqual([root, root, root]);
    expect((await stat(root)).ino).toBe(ino);
    const another = await prepareVmmRoot(roots, { ...contents, programs: ['/usr/bin/true'] });
    expect(another).not.toBe(root);
    await removeOtherVmmRoots(roots, root);
    expect(await readdir(roots)).toEqual([root.slice(roots.length + 1)]);
  });
});

import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findInputs } from './inputs.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'fuse-cli-'));
});
afterEach(() => rm(directory, { recursive: true }));

const at = (name: string) => join(directory, name);

describe('findInputs', () => {
  it('walks directories and keeps permission bits', async () => {
    await mkdir(at('src/deep'), { recursive: true });
    await writeFile(at('src/a'), 'x');
    await writeFile(at('src/deep/run.sh'), 'xy', { mode: 0o755 });
    const found = await findInputs([{ local: at('src'), guest: 'src' }], () => {});
    expect(found.map(({ guestPath, mode, sizeBytes }) => [guestPath, mode, sizeBytes]).sort()).toEqual([
      ['src/a', 0o644, 1],
      ['src/deep/run.sh', 0o755, 2],
    ]);
  });

  it('puts the content of "." into the workspace itself', async () => {
    await writeFile(at('a'), 'x');
    const [found] = await findInputs([{ local: directory, guest: '' }], () => {});
    expect(found?.guestPath).toBe('a');
  });

  it('says which links it leaves out', async () => {
    await symlink('/etc/passwd', at('link'));
    const skipped: string[] = [];
    expect(await findInputs([{ local: directory, guest: '' }], (path) => skipped.push(path))).toEqual([]);
    expect(skipped).toEqual([at('link')]);
  });

  it('takes a file that is named twice once, and refuses two files of one name', async () => {
    await mkdir(at('d'));
    await writeFile(at('a'), 'x');
    await writeFile(at('d/a'), 'y');
    const a = { local: at('a'), guest: 'a' };
    expect(await findInputs([a, a], () => {})).toHaveLength(1);
    await expect(findInputs([a, { local: at('d/a'), guest: 'a' }], () => {})).rejects.toThrow(
      'would both be a in the run',
    );
  });

  it('names what is not there', async () => {
    await expect(findInputs([{ local: at('none'), guest: 'x' }], () => {})).rejects.toThrow(/none: no such file/);
    await expect(findInputs([{ local: '/dev/null', guest: 'x' }], () => {})).rejects.toThrow(
      'neither a file nor a directory',
    );
  });
});

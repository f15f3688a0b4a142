import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { leftovers } from './leftovers.mjs';

describe('what a local stack may not leave', () => {
  /** @type {string} */
  let home;
  beforeEach(async () => {
    home = await mkdtemp(join(tmpdir(), 'fuse-home-'));
  });
  afterEach(() => rm(home, { recursive: true }));

  it('is a VMM that works in its home, and no other process', async () => {
    expect(await leftovers(home)).toEqual([]);
    const vmm = spawn('sleep', ['60'], { argv0: '/usr/bin/qemu-system-x86_64', cwd: home });
    const shell = spawn('sleep', ['60'], { cwd: home });
    try {
      await Promise.all([once(vmm, 'spawn'), once(shell, 'spawn')]);
      expect(await leftovers(home)).toEqual([
        expect.stringContaining(`process ${vmm.pid}: /usr/bin/qemu-system-x86_64`),
      ]);
      expect(await leftovers(`${home}-other`)).toEqual([]);
    } finally {
      vmm.kill();
      shell.kill();
    }
    await once(vmm, 'close');
    expect(await leftovers(home)).toEqual([]);
  });
});

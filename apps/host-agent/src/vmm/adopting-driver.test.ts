import { describe, expect, it } from 'vitest';
import { AdoptingDriver } from './adopting-driver.ts';
import type { Vmm, VmmDriver } from './driver.ts';

/** Only ever compared. */
const vmmOf = (pid: number) => ({ pid }) as Vmm;

describe('a host whose VMM was changed', () => {
  const own: VmmDriver = {
    name: 'firecracker',
    accelerator: 'kvm',
    confined: true,
    fingerprint: async () => 'own',
    boot: async () => vmmOf(1),
    restore: async () => vmmOf(2),
    adopt: async () => vmmOf(3),
  };
  const driver = new AdoptingDriver(own, {
    isIn: async (directory) => directory === '/left',
    adopt: async () => vmmOf(4),
  });

  it('takes over what runs under the other one, and asks the right one alone', async () => {
    expect((await driver.adopt('/left'))?.pid).toBe(4);
    expect((await driver.adopt('/own'))?.pid).toBe(3);
  });

  it('is of the new one in all else', async () => {
    expect([driver.name, driver.accelerator, await driver.fingerprint()]).toEqual(['firecracker', 'kvm', 'own']);
  });
});

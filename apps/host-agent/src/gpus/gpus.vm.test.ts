/** As far as it goes without a GPU: a real QEMU in its jail is given one that nothing is behind, and says how far it came. */
import { readdir } from 'node:fs/promises';
import { ErrorEnvelope } from '@fuse/contract';
import { newId } from '@fuse/runtime';
import { temporaryDirectory } from '@fuse/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TEST_SHAPE, TEST_TAG, TestHost } from '../vms/test-host.ts';
import { TestSysfs } from './test-sysfs.ts';

let directory: Awaited<ReturnType<typeof temporaryDirectory>>;
let host: TestHost;
beforeAll(async () => {
  directory = await temporaryDirectory();
  const sysfs = new TestSysfs(directory.path);
  for (const [address, group] of [
    ['0000:65:00.0', '12'],
    ['0000:17:00.0', '13'],
  ] as const)
    await sysfs.addPci({ address, driver: 'vfio-pci', group });
  await sysfs.addNodes('12');
  host = await TestHost.open({ gpus: sysfs.config, confinement: { mode: 'required', uidBase: 871_000 } });
}, 60_000);
afterAll(async () => {
  await host?.[Symbol.asyncDispose]();
  await directory[Symbol.asyncDispose]();
});

const create = async (gpus: object) => {
  const body = { image: 'base', shape: TEST_SHAPE, tag: TEST_TAG, hostname: 'gpu', gpus };
  const response = await host.fetch('PUT', `/v1/vms/${newId('vm')}`, body);
  const { error } = ErrorEnvelope.parse(await response.json());
  return { status: response.status, error };
};
const expectNothingLeft = async () => {
  expect(await (await host.fetch('GET', '/v1/vms')).json()).toEqual({ vms: [] });
  expect(await readdir(host.vmsDirectory)).toEqual([]);
};

describe('a host with GPUs', () => {
  it('tells them', async () => {
    expect(await (await host.fetch('GET', '/v1/capacity')).json()).toMatchObject({
      gpus: 2,
      gpu_devices: [{ pci_bus_id: '0000:17:00.0', iommu_group: '13' }, { pci_bus_id: '0000:65:00.0' }],
    });
  });

  it('has QEMU open one in its jail, and when that fails says why and leaves nothing', async () => {
    const { status, error } = await create({ gpus: 1, devices: ['0000:65:00.0'] });
    expect(status).toBe(503);
    // Not every root may raise what others lock; whose may gets as far as the node, which is none of VFIO's.
    expect(error.message).toMatch(
      /limit locked memory: operation not permitted|vfio 0000:65:00\.0: .*group 12.*Inappropriate ioctl/,
    );
    await expectNothingLeft();
  });

  it('says what is missing for one', async () => {
    const without = await create({ gpus: 1, devices: ['0000:17:00.0'] });
    expect(without).toMatchObject({ status: 503, error: { message: expect.stringContaining('/13, by which') } });
    const unknown = await create({ gpus: 1, devices: ['0000:99:00.0'] });
    expect(unknown).toMatchObject({
      status: 503,
      error: { message: expect.stringContaining('no GPU "0000:99:00.0"'), details: { reason: 'gpus' } },
    });
    await expectNothingLeft();
  });
});

import { temporaryDirectory } from '@fuse/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Gpus as GpuChoice } from './config.ts';
import { instanceOf } from './discover-gpus.ts';
import { Gpus } from './gpus.ts';
import { nameIn } from './pci-ids.ts';
import { TestSysfs } from './test-sysfs.ts';

const uuid = 'c0ffee00-1111-2222-3333-444455556666';
let directory: Awaited<ReturnType<typeof temporaryDirectory>>;
let sysfs: TestSysfs;
beforeAll(async () => {
  directory = await temporaryDirectory();
  sysfs = new TestSysfs(directory.path);
  for (const device of [
    { address: '0000:65:00.0', driver: 'vfio-pci', group: '12' },
    { address: '0000:65:00.1', class: '0x040300', group: '12' },
    { address: '0000:17:00.0', driver: 'vfio-pci', group: '3', class: '0x030000' },
    { address: '0000:00:01.0', driver: 'pcieport', group: '3', class: '0x060400' },
    { address: '0000:b3:00.0', driver: 'vfio-pci', group: '40' },
    { address: '0000:b3:00.1', driver: 'snd_hda_intel', group: '40', class: '0x040300' },
    { address: '0000:b4:00.0', driver: 'nvidia', group: '41' },
    { address: '0000:b5:00.0', driver: 'vfio-pci', group: '42', class: '0x020000' },
    { address: '0000:b6:00.0', driver: 'vfio-pci' },
  ])
    await sysfs.addPci(device);
  await sysfs.addMediated({ uuid, type: 'NVIDIA A100-1-5C', group: '50' });
  await sysfs.addMediated({ uuid: uuid.replace('c0', 'd0'), type: 'NVIDIA A100-4C', group: '51' });
});
afterAll(() => directory[Symbol.asyncDispose]());

describe('the GPUs of a host', () => {
  it('are display controllers bound to vfio-pci whose whole group the host leaves alone, and instances of divided cards', async () => {
    const model = '10de:ffff';
    expect(await new Gpus(sysfs.config).report()).toEqual({
      gpus: 2,
      gpu_kind: expect.any(String),
      gpu_devices: [
        { pci_bus_id: '0000:17:00.0', iommu_group: '3', model: expect.stringContaining(model) },
        { pci_bus_id: '0000:65:00.0', iommu_group: '12', model: expect.stringContaining(model) },
      ],
      mig_instances: [{ uuid, profile: '1g.5gb', kind: 'NVIDIA A100' }],
    });
  });

  it('are none without an IOMMU, when they are off, or those alone that are chosen', async () => {
    const none = { gpus: 0, gpu_kind: '' };
    expect(await new Gpus({ ...sysfs.config, sysfs: `${directory.path}/none` }).report()).toEqual(none);
    expect(await new Gpus({ ...sysfs.config, choice: 'off' }).report()).toEqual(none);
    const chosen = new Gpus({ ...sysfs.config, choice: ['0000:65:00.0'] });
    expect(await chosen.report()).toMatchObject({ gpus: 1, gpu_devices: [{ pci_bus_id: '0000:65:00.0' }] });
    expect((await chosen.report()).mig_instances).toBeUndefined();
  });

  it('are passed through by name; what is not here, or not named, is refused', async () => {
    const gpus = new Gpus(sysfs.config);
    const { vfio } = sysfs.config;
    expect(await gpus.passThrough({ gpus: 1, devices: ['0000:65:00.0'] })).toEqual([
      { bus: 'pci', name: '0000:65:00.0', group: '12', nodePath: `${vfio}/12`, containerPath: `${vfio}/vfio` },
    ]);
    const instance = await gpus.passThrough({ gpus: 1, profile: '1g.5gb', devices: [uuid] });
    expect(instance).toMatchObject([{ bus: 'mdev', name: uuid, group: '50' }]);
    for (const wanted of [
      { gpus: 1, devices: ['0000:b4:00.0'] },
      { gpus: 1, devices: [uuid] },
      { gpus: 1, profile: '1g.5gb', devices: ['0000:65:00.0'] },
      { gpus: 2, devices: ['0000:65:00.0'] },
      { gpus: 1, devices: [] },
    ])
      await expect(gpus.passThrough(wanted)).rejects.toMatchObject({
        code: 'unavailable',
        details: { reason: 'gpus' },
      });
  });
});

it('a PCI device is called what the list calls it', () => {
  const list =
    '# comment\n0001  Other\n\t20b2  Wrong\n10de  NVIDIA Corporation\n\t20b2  GA100 [A100 SXM4 80GB]\n\t\t10de 20b3  Board\n\t20b5  Next\nffff  Last\n\t1eb8  Not theirs\n';
  expect(nameIn(list, '10de', '20b2')).toBe('NVIDIA Corporation GA100 [A100 SXM4 80GB]');
  expect(nameIn(list, '10de', '20b5')).toBe('NVIDIA Corporation Next');
  expect(nameIn(list, '10de', '1eb8')).toBeUndefined();
  expect(nameIn(list, '1002', '20b2')).toBeUndefined();
  expect(nameIn('', '10de', '20b2')).toBeUndefined();
});

it('an instance says its profile in the name of its type', () => {
  expect(instanceOf('GRID A100-3-20C')).toEqual({ profile: '3g.20gb', kind: 'GRID A100' });
  expect(instanceOf('NVIDIA A100-1-5CME')).toEqual({ profile: '1g.5gb+me', kind: 'NVIDIA A100' });
  for (const other of ['NVIDIA A100-4C', 'NVIDIA T4-16Q', '', '-1-5C']) expect(instanceOf(other)).toBeUndefined();
});

it('which ones is said in words or addresses', () => {
  expect(GpuChoice.parse('AUTO')).toBe('auto');
  expect(GpuChoice.parse(`0000:65:00.0, ${uuid}`)).toEqual(['0000:65:00.0', uuid]);
  for (const wrong of ['65:00.0', '../x', 'all', '0000:65:00.0,']) expect(() => GpuChoice.parse(wrong)).toThrow('PCI');
});

import { describe, expect, it } from 'vitest';
import { allocatedGpus, chooseGpus, type GpuCapacity } from './gpus.ts';

const a100 = (uuid: string, more: object = {}) => ({ uuid, model: 'NVIDIA A100-SXM4-80GB', ...more });

describe('whole GPUs', () => {
  const host: GpuCapacity = {
    gpus: 3,
    gpu_kind: 'whatever',
    gpu_devices: [a100('c'), { pci_bus_id: '0000:65:00.0', model: 'Tesla T4' }, a100('b')],
  };

  it('are free devices whose model contains the kind, in any case, the same ones whatever order they come in', () => {
    const wanted = { gpus: 2, gpu_kind: 'A100' };
    expect(chooseGpus(wanted, host, [])).toEqual({ gpus: 2, devices: ['b', 'c'] });
    const turned = { ...host, gpu_devices: [...(host.gpu_devices ?? [])].reverse() };
    expect(chooseGpus(wanted, turned, [])).toEqual({ gpus: 2, devices: ['b', 'c'] });
    expect(chooseGpus({ gpus: 3, gpu_kind: 'a100' }, host, [])).toBeUndefined();
    expect(chooseGpus({ gpus: 1, gpu_kind: 'a100' }, host, [{ gpus: 1, devices: ['b'] }])?.devices).toEqual(['c']);
  });

  it('are known by their address where they have no uuid, and of any kind where none is asked for', () => {
    expect(chooseGpus({ gpus: 1, gpu_kind: 't4' }, host, [])?.devices).toEqual(['0000:65:00.0']);
    expect(chooseGpus({ gpus: 3 }, host, [])?.devices).toEqual(['0000:65:00.0', 'b', 'c']);
  });

  it('are not more than were declared', () => {
    expect(chooseGpus({ gpus: 2 }, { ...host, gpus: 1 }, [])).toBeUndefined();
    expect(chooseGpus({ gpus: 1 }, { ...host, gpus: 1 }, [{ gpus: 1, devices: ['gone'] }])).toBeUndefined();
  });

  it('are none that are given away in instances, nor of a group that another one has a device of', () => {
    const divided = { ...host, mig_instances: [{ uuid: 'm', profile: '1g.10gb', parent_gpu_uuid: 'c' }] };
    expect(chooseGpus({ gpus: 2, gpu_kind: 'a100' }, divided, [])).toBeUndefined();
    const enabled = { gpus: 1, gpu_devices: [a100('a', { mig_mode: 'Enabled' })] };
    expect(chooseGpus({ gpus: 1 }, enabled, [])).toBeUndefined();
    const grouped = {
      gpus: 3,
      gpu_devices: [a100('a', { iommu_group: '7' }), a100('b', { iommu_group: '7' }), a100('c')],
    };
    expect(chooseGpus({ gpus: 2 }, grouped, [{ gpus: 1, devices: ['a'] }])).toBeUndefined();
    expect(chooseGpus({ gpus: 1 }, grouped, [{ gpus: 1, devices: ['a'] }])?.devices).toEqual(['c']);
    expect(chooseGpus({ gpus: 2 }, grouped, [])?.devices).toEqual(['a', 'b']);
  });

  it('are a number and exactly the kind where the host does not tell its devices', () => {
    const counted = { gpus: 2, gpu_kind: 'a100' };
    expect(chooseGpus({ gpus: 2, gpu_kind: 'a100' }, counted, [])).toEqual({ gpus: 2, devices: [] });
    expect(chooseGpus({ gpus: 1, gpu_kind: 'a10' }, counted, [])).toBeUndefined();
    expect(chooseGpus({ gpus: 2 }, counted, [{ gpus: 1, devices: [] }])).toBeUndefined();
    const instances = [{ gpus: 2, profile: '1g.10gb', devices: [] }];
    expect(chooseGpus({ gpus: 2 }, counted, instances)).toBeDefined();
    expect(chooseGpus({ gpus: 1 }, {}, [])).toBeUndefined();
  });
});

describe('instances', () => {
  const wanted = { gpus: 1, gpu_profile: '1g.10gb' };
  const instances = [
    { uuid: 'm2', profile: '1g.10gb', parent_gpu_uuid: 'a' },
    { uuid: 'm1', profile: '1g.10gb', kind: 'H100' },
    { uuid: 'm3', profile: '2G.20GB' },
    { profile: '1g.10gb' },
  ];
  const host: GpuCapacity = { gpus: 1, gpu_kind: 'b200', gpu_devices: [a100('a')], mig_instances: instances };

  it('are free ones of the profile; one that nobody can name is none', () => {
    expect(chooseGpus({ ...wanted, gpus: 2 }, host, [])).toEqual({
      gpus: 2,
      profile: '1g.10gb',
      devices: ['m1', 'm2'],
    });
    expect(chooseGpus({ ...wanted, gpus: 3 }, host, [])).toBeUndefined();
    const held = [{ gpus: 1, profile: '1g.10gb', devices: ['m1'] }];
    expect(chooseGpus(wanted, host, held)?.devices).toEqual(['m2']);
    expect(chooseGpus({ gpus: 1, gpu_profile: '2g.20gb' }, host, [])?.devices).toEqual(['m3']);
    expect(chooseGpus({ gpus: 1, gpu_profile: '7g.80gb' }, host, [])).toBeUndefined();
  });

  it('are of the kind that they say, of their device, or of the host', () => {
    expect(chooseGpus({ ...wanted, gpu_kind: 'h100' }, host, [])?.devices).toEqual(['m1']);
    expect(chooseGpus({ ...wanted, gpu_kind: 'a100' }, host, [])?.devices).toEqual(['m2']);
    expect(chooseGpus({ gpus: 1, gpu_profile: '2g.20gb', gpu_kind: 'b200' }, host, [])?.devices).toEqual(['m3']);
  });

  it('are counted by profile where the host does not tell them', () => {
    const counted = { mig_profiles: { '1g.10gb': 2 }, gpu_kind: 'a100' };
    const held = [
      { gpus: 1, profile: '1g.10gb', devices: [] },
      { gpus: 9, profile: '2g.20gb', devices: [] },
      { gpus: 9, devices: [] },
    ];
    expect(chooseGpus({ ...wanted, gpu_kind: 'a100' }, counted, held)).toEqual({
      gpus: 1,
      profile: '1g.10gb',
      devices: [],
    });
    expect(chooseGpus({ ...wanted, gpus: 2 }, counted, held)).toBeUndefined();
    expect(chooseGpus({ ...wanted, gpu_kind: 'h100' }, counted, [])).toBeUndefined();
    expect(chooseGpus({ gpus: 1, gpu_profile: 'constructor' }, counted, [])).toBeUndefined();
  });
});

describe('never two on one device', () => {
  it('when its host tells it by another name than when it was given away', () => {
    const nameless: GpuCapacity = { gpus: 2, gpu_devices: [{ pci_bus_id: '1' }, { pci_bus_id: '2' }] };
    const first = chooseGpus({ gpus: 1 }, nameless, []);
    expect(first?.devices).toEqual(['1']);
    const named: GpuCapacity = {
      gpus: 2,
      gpu_devices: [
        { uuid: 'a', pci_bus_id: '1' },
        { uuid: 'b', pci_bus_id: '2' },
      ],
    };
    expect(chooseGpus({ gpus: 1 }, named, first ? [first] : [])?.devices).toEqual(['b']);
  });

  it('that is told twice', () => {
    const twice: GpuCapacity = { gpus: 2, gpu_devices: [a100('a'), a100('a')] };
    expect(chooseGpus({ gpus: 2 }, twice, [])).toBeUndefined();
    expect(chooseGpus({ gpus: 1 }, twice, [])?.devices).toEqual(['a']);
    const instance = { uuid: 'm', profile: '1g.10gb' };
    const wanted = { gpus: 2, gpu_profile: '1g.10gb' };
    expect(chooseGpus(wanted, { mig_instances: [instance, instance] }, [])).toBeUndefined();
  });

  it('that is held whole and told in instances, by whichever name', () => {
    const gpu_devices = [{ uuid: 'a', pci_bus_id: '1' }, { pci_bus_id: '2' }];
    for (const parent_gpu_uuid of ['a', '1', '2']) {
      const host = { gpus: 2, gpu_devices, mig_instances: [{ uuid: 'm', profile: '1g.10gb', parent_gpu_uuid }] };
      const holds = (id: string) => [{ gpus: 1, devices: [id] }];
      const wanted = { gpus: 1, gpu_profile: '1g.10gb' };
      expect(chooseGpus(wanted, host, holds(parent_gpu_uuid === '2' ? '2' : 'a'))).toBeUndefined();
      expect(chooseGpus({ gpus: 2 }, host, [])).toBeUndefined();
    }
  });
});

it('what is held is shown by number and profile, instances by uuid', () => {
  expect(allocatedGpus([])).toEqual({});
  expect(
    allocatedGpus([
      { gpus: 2, devices: ['a', 'b'] },
      { gpus: 1, profile: '1g.10gb', devices: ['m2'] },
      { gpus: 1, profile: '1g.10gb', devices: ['m1'] },
      { gpus: 1, devices: [] },
    ]),
  ).toEqual({ gpus: 3, mig_profiles: { '1g.10gb': 2 }, mig_instance_uuids: ['m1', 'm2'] });
});

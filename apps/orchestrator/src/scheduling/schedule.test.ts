import { describe, expect, it } from 'vitest';
import type { PlacementSpec } from './placement.ts';
import { obstacleToResume, type SchedulableHost, schedule } from './schedule.ts';

const host = (id: string, changes: Partial<SchedulableHost> = {}): SchedulableHost => ({
  id,
  state: 'active',
  reachable: true,
  arch: 'amd64',
  backend: 'qemu',
  labels: {},
  images: ['base'],
  templates: [],
  capacity: { cpus: 8, ram_mb: 16_384, storage_gb: 100, vm_count: 10 },
  used: { cpus: 0, ram_mb: 0, storage_gb: 0, vm_count: 0 },
  ...changes,
});
const spec = (changes: Partial<PlacementSpec> = {}): PlacementSpec => ({
  cpus: 2,
  ram_mb: 2_048,
  storage_gb: 10,
  image: 'base',
  ...changes,
});
const full = { cpus: 8, ram_mb: 16_384, storage_gb: 100, vm_count: 10 };

describe('schedule', () => {
  it('spreads over the host with most free capacity, the smaller id on a tie', () => {
    const busy = host('a', { used: { cpus: 4, ram_mb: 0, storage_gb: 0, vm_count: 1 } });
    expect(schedule(spec(), [busy, host('c'), host('b')])).toMatchObject({ kind: 'placed', hostId: 'b' });
  });

  it('packs onto the fullest host that fits when asked to', () => {
    const busy = host('z', { used: { cpus: 4, ram_mb: 0, storage_gb: 0, vm_count: 1 } });
    expect(schedule(spec(), [host('a'), busy], 'binpack')).toMatchObject({ kind: 'placed', hostId: 'z' });
  });

  it('places what is to have a network where there can be one, and says why there is none', () => {
    const without = host('a', { noNetwork: 'lacks tproxy' });
    expect(schedule(spec({ network: true }), [without, host('b')])).toMatchObject({
      hostId: 'b',
      hosts: [{ hostId: 'a', reason: 'can give it no network: lacks tproxy' }, { hostId: 'b' }],
    });
    expect(schedule(spec(), [without])).toMatchObject({ kind: 'placed' });
    expect(schedule(spec({ network: true }), [without])).toMatchObject({
      kind: 'impossible',
      message: 'no host can give it a network: host "a": lacks tproxy',
    });
  });

  it('starts a snapshot where its bytes are, elsewhere only when they are in the object store too', () => {
    const seed = (isExported: boolean) => ({ snapshotId: 's', hostId: 'z', isExported });
    const busy = host('z', { used: { cpus: 4, ram_mb: 0, storage_gb: 0, vm_count: 1 } });
    for (const policy of ['spread', 'binpack'] as const)
      for (const isExported of [true, false])
        expect(schedule(spec({ seed: seed(isExported) }), [host('a'), busy], policy)).toMatchObject({
          kind: 'placed',
          hostId: 'z',
        });
    const hosts = [host('a'), host('z', { used: full })];
    expect(schedule(spec({ seed: seed(true) }), hosts)).toMatchObject({ kind: 'placed', hostId: 'a' });
    expect(schedule(spec({ seed: seed(false) }), hosts)).toMatchObject({
      kind: 'no_room',
      message: 'snapshot s is not exported, so only its host can start it: host "z" does not fit 2CPU/2048MB/10GB',
    });
    expect(schedule(spec({ seed: seed(false) }), [host('a')])).toMatchObject({
      kind: 'impossible',
      message: 'snapshot s is not exported and its host is not registered',
    });
    expect(schedule(spec({ seed: seed(false), host_id: 'a' }), hosts)).toMatchObject({
      kind: 'impossible',
      message: expect.stringContaining('does not hold snapshot s, which is not exported'),
    });
  });

  it('says "no room" when a host is only full, cordoned or unreachable', () => {
    for (const changes of [{ used: full }, { state: 'cordoned' }, { reachable: false }] as const)
      expect(schedule(spec(), [host('a', changes)])).toMatchObject({ kind: 'no_room' });
    expect(schedule(spec(), [])).toMatchObject({ kind: 'no_room', message: 'no hosts registered' });
  });

  it('says "impossible" when no host ever could', () => {
    for (const changes of [
      { cpus: 9 },
      { ram_mb: 16_385 },
      { storage_gb: 101 },
      { arch: 'arm64' },
      { region: 'eu' },
      { gpus: 1 },
      { labels: { disk: 'nvme' } },
      { image: 'other' },
    ])
      expect(schedule(spec(changes), [host('a'), host('b', { state: 'cordoned' })])).toMatchObject({
        kind: 'impossible',
      });
  });

  it('tells why, in the words of the API', () => {
    const message = (changes: Partial<PlacementSpec>, hosts: SchedulableHost[]) => {
      const verdict = schedule(spec(changes), hosts);
      return verdict.kind === 'placed' ? 'placed' : verdict.message;
    };
    expect(message({ cpus: 9 }, [host('a')])).toBe(
      'no host has sufficient capacity: need 9CPU/2048MB/10GB, no eligible host fits',
    );
    expect(message({ gpus: 1 }, [host('a')])).toBe(
      'no host has sufficient capacity: need 2CPU/2048MB/10GB + 1 gpu, and none of 1 schedulable hosts serves gpus',
    );
    expect(message({ labels: { b: '2', a: '1' } }, [host('a'), host('b')])).toBe(
      'no host matches the requested placement labels: a=1, b=2 matched none of 2 schedulable hosts',
    );
    expect(message({ host_id: 'a' }, [host('a', { state: 'cordoned' })])).toBe(
      'pinned host cannot take this environment: host "a" is cordoned, not active',
    );
    expect(message({ host_id: 'a', region: 'eu' }, [host('a', { region: 'us' })])).toBe(
      'pinned host cannot take this environment: host "a" is in region "us", the spec requires "eu"',
    );
    expect(message({ host_id: 'x' }, [host('a')])).toBe('spec.host_id: host "x" is not registered');
    expect(schedule(spec({ host_id: 'x' }), [host('a')])).toMatchObject({ kind: 'no_such_host' });
  });

  it('names gpus in what is needed, the backend that passes them on, and who serves them', () => {
    const wanted = spec({ gpus: 1, gpu_kind: 'a100' });
    expect(schedule(wanted, [host('a')])).toMatchObject({
      message:
        'no host has sufficient capacity: need 2CPU/2048MB/10GB + 1 gpu of kind "a100", and none of 1 schedulable hosts serves gpus',
    });
    expect(schedule(wanted, [host('a', { state: 'cordoned' })])).toMatchObject({
      message: 'no host has sufficient capacity: need 2CPU/2048MB/10GB + 1 gpu of kind "a100", no eligible host fits',
    });
    expect(schedule({ ...wanted, host_id: 'a' }, [host('a', { backend: 'firecracker' })])).toMatchObject({
      message: 'pinned host cannot take this environment: host "a" has backend "firecracker", gpus require "qemu"',
    });
  });

  it('gives gpus of a host that has them free, and says which', () => {
    const gpu_devices = ['b', 'a'].map((uuid) => ({ uuid, model: 'NVIDIA A100' }));
    const serving = host('g', { gpus: { gpus: 2, gpu_devices } });
    const wanted = spec({ gpus: 1, gpu_kind: 'a100' });
    expect(schedule(wanted, [host('a'), serving])).toMatchObject({
      kind: 'placed',
      hostId: 'g',
      gpus: { gpus: 1, devices: ['a'] },
      hosts: [{ hostId: 'a', reason: 'does not fit 2CPU/2048MB/10GB + 1 gpu of kind "a100"' }, { hostId: 'g' }],
    });
    const held = { ...serving, used: { ...serving.used, gpus: [{ gpus: 1, devices: ['a'] }] } };
    expect(schedule(wanted, [held])).toMatchObject({ gpus: { devices: ['b'] } });
    const promised = { cpus: 0, ram_mb: 0, storage_gb: 0, vm_count: 0, gpus: [{ gpus: 1, devices: ['b'] }] };
    expect(schedule(wanted, [{ ...held, promised }])).toMatchObject({
      kind: 'no_room',
      hosts: [{ hostId: 'g', reason: 'has its room promised to others that wait' }],
    });
    expect(schedule(spec({ gpus: 2 }), [held])).toMatchObject({
      kind: 'no_room',
      message: 'no host has sufficient capacity: need 2CPU/2048MB/10GB + 2 gpu, no eligible host fits',
    });
    expect(schedule(spec({ gpus: 1, gpu_profile: '1g.10gb', host_id: 'g' }), [serving])).toMatchObject({
      kind: 'impossible',
      message:
        'pinned host cannot take this environment: host "g" does not fit 2CPU/2048MB/10GB + 1 gpu of profile "1g.10gb"',
    });
    expect(schedule(spec({ gpus: 1, labels: { a: 'b' } }), [serving])).toMatchObject({
      message: 'no host matches the requested placement labels: a=b matched none of 1 schedulable hosts',
    });
    expect(schedule(wanted, [])).toMatchObject({ message: 'gpu workloads require a registered gpu host' });
  });

  it('takes, of equal scores, the host that has a template of the image and shape', () => {
    const template = { image: 'base', cpus: 2, ram_mb: 2_048, storage_gb: 10 };
    const prepared = host('z', { templates: [{ ...template, cpus: 1 }, template] });
    for (const policy of ['spread', 'binpack'] as const) {
      expect(schedule(spec(), [host('a'), prepared], policy)).toMatchObject({ hostId: 'z' });
      expect(schedule(spec({ ram_mb: 1_024 }), [host('a'), prepared], policy)).toMatchObject({ hostId: 'a' });
    }
    const freer = host('m', { capacity: { ...full, cpus: 9 } });
    expect(schedule(spec(), [freer, prepared])).toMatchObject({ hostId: 'm' });
    const withCard = host('x', { templates: [{ ...template, network_card: true }] });
    expect(schedule(spec(), [host('a'), withCard, prepared])).toMatchObject({ hostId: 'z' });
    expect(schedule(spec({ network: true }), [host('a'), prepared, withCard])).toMatchObject({ hostId: 'x' });
  });

  it('keeps off a host whose disk is filled, and off room that is promised', () => {
    expect(schedule(spec(), [host('a', { freeStorageGb: 9 })])).toMatchObject({
      kind: 'no_room',
      hosts: [{ hostId: 'a', reason: 'has 9GB of its disk free, the spec requires 10GB' }],
    });
    expect(schedule(spec(), [host('a', { freeStorageGb: 10 })])).toMatchObject({ kind: 'placed' });
    const promised = { cpus: 7, ram_mb: 0, storage_gb: 0, vm_count: 1 };
    for (const away of ['all', promised] as const)
      expect(schedule(spec(), [host('a', { promised: away })])).toMatchObject({
        kind: 'no_room',
        hosts: [{ hostId: 'a', reason: 'has its room promised to others that wait' }],
      });
    expect(schedule(spec({ cpus: 1 }), [host('a', { promised })])).toMatchObject({ kind: 'placed' });
  });

  it('says that a host is lost', () => {
    expect(schedule(spec({ host_id: 'a' }), [host('a', { state: 'lost', reachable: false })])).toMatchObject({
      kind: 'no_room',
      message: 'pinned host cannot take this environment: host "a" is lost, not active',
    });
  });
});

describe('obstacleToResume', () => {
  const paused = { cpus: 2, ram_mb: 2_048 };
  const used = { cpus: 6, ram_mb: 1_024, storage_gb: 100, vm_count: 9 };

  it('is none while cpus, memory and a slot are free, however full the disk and whatever the operator wants new', () => {
    expect(obstacleToResume(paused, host('a', { used, state: 'cordoned', labels: { team: 'other' } }))).toBeUndefined();
  });

  it('is any one of the three, or a host that is not heard of', () => {
    for (const more of [{ cpus: 7 }, { ram_mb: 14_337 }, { vm_count: 10 }])
      expect(obstacleToResume(paused, host('a', { used: { ...used, ...more } }))).toBe('does not fit 2CPU/2048MB');
    expect(obstacleToResume(paused, host('a', { reachable: false }))).toBe('is not reachable');
  });
});

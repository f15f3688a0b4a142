import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { GpuCapacity, GpuHold } from './gpus.ts';
import type { Judgement, PlacementSpec } from './placement.ts';
import { type PlacementPolicy, type SchedulableHost, schedule, wouldTakeWithRoom } from './schedule.ts';

const RUNS = 2_000;
const KEYS = ['cpus', 'ram_mb', 'storage_gb', 'vm_count'] as const;
const SHAPES = [
  { cpus: 1, ram_mb: 512, storage_gb: 2 },
  { cpus: 2, ram_mb: 2_048, storage_gb: 10 },
  { cpus: 8, ram_mb: 16_384, storage_gb: 100 },
];

const capacity = (max: { cpus: number; ram_mb: number; storage_gb: number; vm_count: number }) =>
  fc.record({
    cpus: fc.integer({ min: 0, max: max.cpus }),
    ram_mb: fc.integer({ min: 0, max: max.ram_mb }),
    storage_gb: fc.integer({ min: 0, max: max.storage_gb }),
    vm_count: fc.integer({ min: 0, max: max.vm_count }),
  });
const most = { cpus: 16, ram_mb: 32_768, storage_gb: 200, vm_count: 20 };
const mostly = <T>(value: T, ...others: T[]) => fc.constantFrom(value, value, value, ...others);
const GROUPS = [undefined, '1', '2'];
/** Devices told or counted; of the told ones some in instances, some of one group. */
const gpus: fc.Arbitrary<GpuCapacity | undefined> = fc.option(
  fc.record({
    gpus: fc.integer({ min: 0, max: 4 }),
    gpu_kind: fc.constantFrom('a100', 't4'),
    gpu_devices: fc
      .array(
        fc.record({
          model: fc.constantFrom('NVIDIA A100', 'Tesla T4'),
          iommu_group: fc.constantFrom(...GROUPS),
          mig_mode: mostly('Disabled', 'Enabled'),
        }),
        { maxLength: 4 },
      )
      .map((list) => list.map((device, n) => ({ ...device, uuid: `gpu-${n}` }))),
    mig_profiles: fc.dictionary(fc.constantFrom('1g.10gb', '2g.20gb'), fc.integer({ min: 1, max: 3 })),
    mig_instances: fc
      .array(fc.record({ profile: fc.constantFrom('1g.10gb', '2g.20gb') }), { maxLength: 3 })
      .map((list) => list.map((instance, n) => ({ ...instance, uuid: `mig-${n}`, parent_gpu_uuid: 'gpu-0' }))),
  }),
  { nil: undefined },
);
const labels = fc.dictionary(fc.constantFrom('disk', 'team'), fc.constantFrom('a', 'b'), { maxKeys: 2 });

const hosts: fc.Arbitrary<SchedulableHost[]> = fc
  .array(
    fc
      .record({
        state: mostly('active' as const, 'cordoned' as const, 'draining' as const, 'lost' as const),
        reachable: mostly(true, false),
        region: fc.constantFrom(undefined, 'eu', 'us'),
        arch: mostly('amd64', 'arm64'),
        backend: mostly('qemu', 'firecracker'),
        labels,
        images: fc.subarray(['base', 'python']),
        templates: fc.array(
          fc.record({ image: fc.constantFrom('base', 'python'), shape: fc.constantFrom(...SHAPES) }),
          { maxLength: 2 },
        ),
        capacity: capacity(most),
        freeStorageGb: mostly<number | undefined>(undefined, 0, 5, 50),
        used: capacity(most),
        gpus,
      })
      .map(({ used, templates, gpus: given, ...host }) => ({
        ...host,
        ...(given === undefined ? {} : { gpus: given }),
        templates: templates.map(({ image, shape }) => ({ image, ...shape })),
        // Not more than there is.
        used: Object.fromEntries(KEYS.map((key) => [key, Math.min(used[key], host.capacity[key])])) as typeof used,
      })),
    { maxLength: 8 },
  )
  .map((list) => list.map((host, index) => ({ ...host, id: `host-${index}` })));

const optional = <Key extends string, T>(key: Key, value: fc.Arbitrary<T>) =>
  fc.option(value, { nil: undefined }).map((given) => (given === undefined ? {} : { [key]: given }));

const specs: fc.Arbitrary<PlacementSpec> = fc
  .tuple(
    fc.constantFrom(...SHAPES),
    optional('image', fc.constantFrom('base', 'python')),
    optional('region', mostly('eu', 'us')),
    optional('arch', mostly('amd64', 'arm64')),
    fc.constantFrom(
      {},
      {},
      {},
      { gpus: 1 },
      { gpus: 2 },
      { gpus: 1, gpu_kind: 'a100' },
      { gpus: 2, gpu_profile: '1g.10gb' },
    ),
    optional('host_id', fc.constantFrom('host-0', 'host-1', 'host-9')),
    optional('labels', labels),
    optional(
      'seed',
      fc.record({
        snapshotId: fc.constant('s'),
        hostId: fc.constantFrom(null, 'host-0', 'host-3'),
        isExported: fc.boolean(),
      }),
    ),
  )
  .map((parts) => Object.assign({}, ...parts) as PlacementSpec);
const policies = fc.constantFrom<PlacementPolicy>('spread', 'binpack');

/** What each gate asks, said again in other words. */
function allows(spec: PlacementSpec, host: SchedulableHost): boolean {
  const room = KEYS.map((key) => host.capacity[key] - host.used[key]);
  const [cpus = 0, ram_mb = 0, storage_gb = 0, slots = 0] = room;
  return (
    [undefined, host.id].includes(spec.host_id) &&
    host.state === 'active' &&
    host.reachable &&
    [undefined, host.region].includes(spec.region) &&
    [undefined, host.arch].includes(spec.arch) &&
    (!spec.gpus || (host.backend === 'qemu' && freeGpus(spec, host) >= spec.gpus)) &&
    Object.entries(spec.labels ?? {}).every(([key, value]) => host.labels[key] === value) &&
    (spec.image === undefined || host.images.includes(spec.image)) &&
    (spec.seed === undefined || spec.seed.isExported || spec.seed.hostId === host.id) &&
    Math.min(cpus - spec.cpus, ram_mb - spec.ram_mb, storage_gb - spec.storage_gb, slots - 1) >= 0 &&
    (host.freeStorageGb ?? spec.storage_gb) >= spec.storage_gb
  );
}

/** How many of what it wants are free. */
function freeGpus({ gpu_kind, gpu_profile }: PlacementSpec, host: SchedulableHost): number {
  const { gpus = 0, gpu_devices = [], mig_instances = [], mig_profiles = {}, gpu_kind: kind } = host.gpus ?? {};
  const held = host.used.gpus ?? [];
  const count = held.filter(({ profile }) => profile === gpu_profile).reduce((sum, one) => sum + one.gpus, 0);
  const isHeld = (uuid: string | undefined) => held.some(({ devices }) => devices.includes(uuid ?? ''));
  if (gpu_profile !== undefined)
    return mig_instances.length === 0
      ? (mig_profiles[gpu_profile] ?? 0) - count
      : mig_instances.filter((each) => each.profile === gpu_profile && !isHeld(each.uuid)).length;
  if (gpu_devices.length === 0) return gpu_kind === undefined || gpu_kind === kind ? gpus - count : 0;
  const hasHeldNeighbour = (group: string | undefined) =>
    group !== undefined && gpu_devices.some((each) => each.iommu_group === group && isHeld(each.uuid));
  const free = gpu_devices.filter(
    (each) =>
      !isHeld(each.uuid) &&
      !hasHeldNeighbour(each.iommu_group) &&
      each.mig_mode !== 'Enabled' &&
      !mig_instances.some(({ parent_gpu_uuid }) => parent_gpu_uuid === each.uuid) &&
      (gpu_kind === undefined || each.model?.toLowerCase().includes(gpu_kind)),
  );
  return Math.min(free.length, gpus - count);
}

function take(spec: PlacementSpec, host: SchedulableHost, hold: GpuHold | undefined): void {
  host.used = {
    gpus: [...(host.used.gpus ?? []), ...(hold === undefined ? [] : [hold])],
    cpus: host.used.cpus + spec.cpus,
    ram_mb: host.used.ram_mb + spec.ram_mb,
    storage_gb: host.used.storage_gb + spec.storage_gb,
    vm_count: host.used.vm_count + 1,
  };
}

/** No device or instance is held twice, nor two of a group by two environments. */
function expectEachGpuOnce({ gpus: { gpu_devices = [] } = {}, used: { gpus = [] } }: SchedulableHost): void {
  const ids = gpus.flatMap(({ devices }) => devices);
  expect(new Set(ids).size).toBe(ids.length);
  const groups = gpus.map(
    ({ devices }) =>
      new Set(gpu_devices.flatMap((each) => (devices.includes(each.uuid ?? '') ? (each.iommu_group ?? []) : []))),
  );
  const all = groups.flatMap((each) => [...each]);
  expect(new Set(all).size).toBe(all.length);
}

describe('over thousands of random fleets', () => {
  it('nothing is ever overcommitted, and what is placed passes every gate', () => {
    fc.assert(
      fc.property(hosts, fc.array(specs, { maxLength: 30 }), policies, (fleet, wanted, policy) => {
        for (const spec of wanted) {
          const verdict = schedule(spec, fleet, policy);
          const able = fleet.filter((host) => allows(spec, host));
          expect(verdict.kind === 'placed').toBe(able.length > 0);
          if (verdict.kind !== 'placed') continue;
          const chosen = able.find(({ id }) => id === verdict.hostId);
          if (chosen === undefined) throw new Error(`placed on ${verdict.hostId}, which fails a gate`);
          take(spec, chosen, verdict.gpus);
          for (const key of KEYS) expect(chosen.used[key]).toBeLessThanOrEqual(chosen.capacity[key]);
          expectEachGpuOnce(chosen);
        }
      }),
      { numRuns: RUNS },
    );
  });

  it('it is the same whenever it is asked and in whatever order the hosts come', () => {
    const shuffled = hosts.chain((fleet) =>
      fc.tuple(fc.constant(fleet), fc.shuffledSubarray(fleet, { minLength: fleet.length })),
    );
    fc.assert(
      fc.property(shuffled, specs, policies, ([fleet, mixed], spec, policy) => {
        const verdict = schedule(spec, fleet, policy);
        expect(schedule(spec, fleet, policy)).toEqual(verdict);
        expect(schedule(spec, mixed, policy)).toEqual(verdict);
      }),
      { numRuns: RUNS },
    );
  });

  it('every host has a score or a reason, the right one of them, and the chosen one is the best', () => {
    fc.assert(
      fc.property(hosts, specs, policies, (fleet, spec, policy) => {
        const verdict = schedule(spec, fleet, policy);
        expect(verdict.hosts.map(({ hostId }) => hostId)).toEqual(fleet.map(({ id }) => id));
        for (const [position, { score, reason }] of verdict.hosts.entries()) {
          const host = fleet[position];
          if (host === undefined) throw new Error('a judgement of nobody');
          const isAble = allows(spec, host);
          expect({ score: score !== undefined, reason: reason !== undefined }).toEqual({
            score: isAble,
            reason: !isAble,
          });
        }
        if (verdict.kind !== 'placed') return;
        const able = verdict.hosts.filter(({ score }) => score !== undefined);
        const holder = able.find(({ hostId }) => spec.seed !== undefined && hostId === spec.seed.hostId);
        expect(verdict.hostId).toBe((holder ?? bestOf(able, spec, fleet, policy)).hostId);
      }),
      { numRuns: RUNS },
    );
  });

  it('a pin is told the first gate that its host fails', () => {
    const pinned = specs.map((spec) => ({ ...spec, host_id: 'host-0' }));
    fc.assert(
      fc.property(hosts, pinned, (fleet, spec) => {
        const verdict = schedule(spec, fleet);
        if (verdict.kind === 'placed') {
          expect(verdict.hostId).toBe('host-0');
          return;
        }
        const [first] = verdict.hosts;
        if (fleet.length === 0)
          expect(verdict.message).toBe(
            spec.gpus ? 'gpu workloads require a registered gpu host' : 'no hosts registered',
          );
        else
          expect(verdict.message).toBe(
            `pinned host cannot take this environment: host "host-0" ${first?.reason ?? 'has no reason'}`,
          );
        for (const other of verdict.hosts.slice(1)) expect(other.reason).toBe('is not the pinned host "host-0"');
      }),
      { numRuns: RUNS },
    );
  });

  it('"impossible" is what stays so when everybody leaves and every operator lets it, "no room" is what does not', () => {
    fc.assert(
      fc.property(hosts, specs, (fleet, spec) => {
        const verdict = schedule(spec, fleet);
        const emptied = fleet.map(({ freeStorageGb: _, ...host }) => ({
          ...host,
          state: 'active' as const,
          reachable: true,
          used: { cpus: 0, ram_mb: 0, storage_gb: 0, vm_count: 0 },
        }));
        const everPlaced = schedule(spec, emptied).kind === 'placed';
        expect(emptied.some((host) => wouldTakeWithRoom(spec, host))).toBe(everPlaced);
        if (verdict.kind === 'no_room') expect(everPlaced || fleet.length === 0).toBe(true);
        if (verdict.kind === 'impossible' || verdict.kind === 'no_such_host') expect(everPlaced).toBe(false);
      }),
      { numRuns: RUNS },
    );
  });
});

/** Sorted, where the scheduler goes through them once. */
function bestOf(
  able: readonly Judgement[],
  spec: PlacementSpec,
  fleet: readonly SchedulableHost[],
  policy: PlacementPolicy,
): Judgement {
  const isPrepared = ({ hostId }: Judgement): boolean =>
    fleet.some(
      ({ id, templates }) =>
        id === hostId &&
        templates.some(
          (each) =>
            each.image === spec.image &&
            each.cpus === spec.cpus &&
            each.ram_mb === spec.ram_mb &&
            each.storage_gb === spec.storage_gb,
        ),
    );
  const better = policy === 'spread' ? -1 : 1;
  const [best] = [...able].sort(
    (a, b) =>
      better * ((a.score ?? 0) - (b.score ?? 0)) ||
      Number(isPrepared(b)) - Number(isPrepared(a)) ||
      a.hostId.localeCompare(b.hostId),
  );
  if (best === undefined) throw new Error('placed although nobody can take it');
  return best;
}

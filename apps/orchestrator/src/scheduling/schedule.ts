/**
 * Where an environment goes. Pure and deterministic: same hosts, same answer, in whatever order they come.
 *
 * Gates in order; the first that fails is a host's reason: pin, active, reachable, region, arch, gpus, labels, image, seed, network, fits, free disk, promised.
 * Score: free cpus × 10000 + free MB. Among the hosts that pass: one that holds the seed's bytes, whatever the policy; then by score, `spread` the
 * highest (the default), `binpack` the lowest; of equal scores one that has a template of this image and shape, with a network card or without as is asked; then the smaller id.
 */
import { chooseGpus, type GpuCapacity, type GpuHold, servesGpus, wantsGpus } from './gpus.ts';
import type { Judgement, Placement, PlacementSpec, Rejection } from './placement.ts';

export interface Capacity {
  cpus: number;
  ram_mb: number;
  storage_gb: number;
  vm_count: number;
}

/** What of a host is taken: so much, and these of its GPUs. */
export interface Usage extends Capacity {
  gpus?: readonly GpuHold[];
}

export interface PlacementTemplate {
  image: string;
  cpus: number;
  ram_mb: number;
  storage_gb: number;
  /** For VMs that are to have a network, and no others. */
  network_card?: true | undefined;
}

export interface SchedulableHost {
  id: string;
  state: 'active' | 'cordoned' | 'draining' | 'lost';
  /** Answered its last heartbeats. */
  reachable: boolean;
  region?: string | undefined;
  arch: string;
  backend: string;
  labels: Record<string, string>;
  images: readonly string[];
  /** What it starts without booting first. */
  templates: readonly PlacementTemplate[];
  capacity: Capacity;
  /** Absent: none. */
  gpus?: GpuCapacity;
  /** Sum over the environments that hold a reservation. */
  used: Usage;
  /** Of its disk, as it last said; undefined: not known. */
  freeStorageGb?: number | undefined;
  /** Why it can give no VM a network card; undefined: it can. */
  noNetwork?: string | undefined;
  /** Of what is free, what belongs to those that wait for room already. */
  promised?: Usage | 'all';
}

export type PlacementPolicy = 'spread' | 'binpack';

/** What would change it: `never` short of another registration, `state` that of the host, `room` when others leave. */
interface Obstacle {
  reason: string;
  until: 'never' | 'state' | 'room';
}

interface Judged {
  host: SchedulableHost;
  obstacles: Obstacle[];
}

export function schedule(
  spec: PlacementSpec,
  hosts: readonly SchedulableHost[],
  policy: PlacementPolicy = 'spread',
): Placement {
  if (hosts.length === 0) {
    const message = wantsGpus(spec) ? 'gpu workloads require a registered gpu host' : 'no hosts registered';
    return { kind: 'no_room', message, hosts: [] };
  }
  const judged = hosts.map((host) => ({ host, obstacles: obstaclesOf(spec, host) }));
  const best = judged.reduce<SchedulableHost | undefined>((chosen, { host, obstacles }) => {
    if (obstacles.length > 0) return chosen;
    return chosen === undefined || isBetter(host, chosen, policy, spec) ? host : chosen;
  }, undefined);
  const judgements = judged.map(judgementOf).sort(byHostId);
  if (best !== undefined) {
    const gpus = gpusFor(spec, best, taken(best));
    return { kind: 'placed', hostId: best.id, ...(gpus === undefined ? {} : { gpus }), hosts: judgements };
  }
  return { ...rejectionOf(spec, judged), hosts: judgements };
}

/** Whether it would take it if everybody left but `staying`. */
export const wouldTakeWithRoom = (spec: PlacementSpec, host: SchedulableHost, staying?: Usage): boolean =>
  (staying === undefined || fits(spec, host, [staying])) &&
  obstaclesOf(spec, host).every(({ until }) => until === 'room');

const free = ({ capacity, used }: SchedulableHost): Capacity => less(capacity, used);

const less = (all: Capacity, part: Capacity): Capacity => ({
  cpus: all.cpus - part.cpus,
  ram_mb: all.ram_mb - part.ram_mb,
  storage_gb: all.storage_gb - part.storage_gb,
  vm_count: all.vm_count - part.vm_count,
});

/** Beside what is used, and promised. */
const taken = ({ used, promised }: SchedulableHost): Usage[] =>
  promised === undefined || promised === 'all' ? [used] : [used, promised];

function fits(spec: PlacementSpec, host: SchedulableHost, beside: readonly Usage[]): boolean {
  const room = beside.reduce(less, host.capacity);
  const hasAmounts =
    spec.cpus <= room.cpus && spec.ram_mb <= room.ram_mb && spec.storage_gb <= room.storage_gb && room.vm_count >= 1;
  return hasAmounts && (!wantsGpus(spec) || gpusFor(spec, host, beside) !== undefined);
}

const gpusFor = (spec: PlacementSpec, host: SchedulableHost, beside: readonly Usage[]): GpuHold | undefined =>
  wantsGpus(spec)
    ? chooseGpus(
        spec,
        host.gpus ?? {},
        beside.flatMap(({ gpus = [] }) => gpus),
      )
    : undefined;

/** Before it is placed. */
function scoreOf(host: SchedulableHost): number {
  const { cpus, ram_mb } = free(host);
  return cpus * 10_000 + ram_mb;
}

const judgementOf = ({ host, obstacles: [first] }: Judged): Judgement =>
  first === undefined ? { hostId: host.id, score: scoreOf(host) } : { hostId: host.id, reason: first.reason };

const byHostId = (a: Judgement, b: Judgement): number => (a.hostId < b.hostId ? -1 : 1);

function isBetter(
  host: SchedulableHost,
  chosen: SchedulableHost,
  policy: PlacementPolicy,
  spec: PlacementSpec,
): boolean {
  const holder = spec.seed?.hostId;
  if (host.id === holder || chosen.id === holder) return host.id === holder;
  const difference = scoreOf(host) - scoreOf(chosen);
  if (difference !== 0) return policy === 'spread' ? difference > 0 : difference < 0;
  const isPrepared = hasTemplate(spec, host);
  return isPrepared === hasTemplate(spec, chosen) ? host.id < chosen.id : isPrepared;
}

const hasTemplate = (spec: PlacementSpec, { templates }: SchedulableHost): boolean =>
  templates.some(
    ({ image, cpus, ram_mb, storage_gb, network_card }) =>
      image === spec.image &&
      cpus === spec.cpus &&
      ram_mb === spec.ram_mb &&
      storage_gb === spec.storage_gb &&
      (network_card === true) === (spec.network === true),
  );

function needOf({ cpus, ram_mb, storage_gb, gpus = 0, gpu_kind, gpu_profile }: PlacementSpec): string {
  const shape = `${cpus}CPU/${ram_mb}MB/${storage_gb}GB`;
  if (gpus === 0) return shape;
  const kind = gpu_kind === undefined ? '' : ` of kind "${gpu_kind}"`;
  const profile = gpu_profile === undefined ? '' : ` of profile "${gpu_profile}"`;
  return `${shape} + ${gpus} gpu${kind}${profile}`;
}

const labelsMissing = (spec: PlacementSpec, host: SchedulableHost): string[] =>
  Object.entries(spec.labels ?? {})
    .filter(([key, value]) => !Object.hasOwn(host.labels, key) || host.labels[key] !== value)
    .map(([key, value]) => `${key}=${value}`)
    .sort();

/** The only backend that passes gpus through. */
const GPU_BACKEND = 'qemu';

/** In the order of the gates. */
function obstaclesOf(spec: PlacementSpec, host: SchedulableHost): Obstacle[] {
  const found: Obstacle[] = [];
  const obstacle = (until: Obstacle['until']) => (reason: string) => found.push({ reason, until });
  const lasting = obstacle('never');
  const passing = obstacle('room');
  if (spec.host_id !== undefined && spec.host_id !== host.id) lasting(`is not the pinned host "${spec.host_id}"`);
  if (host.state !== 'active') obstacle('state')(`is ${host.state}, not active`);
  if (!host.reachable) obstacle('state')('is not reachable');
  if (spec.region !== undefined && spec.region !== host.region)
    lasting(`is in region "${host.region ?? ''}", the spec requires "${spec.region}"`);
  if (spec.arch !== undefined && spec.arch !== host.arch) lasting(`is ${host.arch}, the spec requires ${spec.arch}`);
  if (wantsGpus(spec) && host.backend !== GPU_BACKEND)
    lasting(`has backend "${host.backend}", gpus require "${GPU_BACKEND}"`);
  const labels = labelsMissing(spec, host);
  if (labels.length > 0) lasting(`does not have labels ${labels.join(', ')}`);
  if (spec.image !== undefined && !host.images.includes(spec.image)) lasting(`does not have image "${spec.image}"`);
  if (spec.seed !== undefined && !spec.seed.isExported && spec.seed.hostId !== host.id)
    lasting(`does not hold snapshot ${spec.seed.snapshotId}, which is not exported`);
  if (spec.network === true && host.noNetwork !== undefined) lasting(`can give it no network: ${host.noNetwork}`);
  const unfit = `does not fit ${needOf(spec)}`;
  if (!fits(spec, host, [])) lasting(unfit);
  else if (!fits(spec, host, [host.used])) passing(unfit);
  else if (host.freeStorageGb !== undefined && host.freeStorageGb < spec.storage_gb)
    passing(`has ${host.freeStorageGb}GB of its disk free, the spec requires ${spec.storage_gb}GB`);
  else if (host.promised === 'all' || !fits(spec, host, taken(host)))
    passing('has its room promised to others that wait');
  return found;
}

/** Why an environment that is paused on this host cannot run there now. Its disk is there already, and no cordon or label matters: it is placed. */
export function obstacleToResume(
  spec: Pick<PlacementSpec, 'cpus' | 'ram_mb'>,
  host: SchedulableHost,
): string | undefined {
  if (!host.reachable) return 'is not reachable';
  const room = free(host);
  const isFull = spec.cpus > room.cpus || spec.ram_mb > room.ram_mb || room.vm_count < 1;
  return isFull ? `does not fit ${spec.cpus}CPU/${spec.ram_mb}MB` : undefined;
}

function rejectionOf(spec: PlacementSpec, judged: readonly Judged[]): Omit<Rejection, 'hosts'> {
  if (spec.host_id !== undefined && judged.every(({ host }) => host.id !== spec.host_id))
    return { kind: 'no_such_host', message: `spec.host_id: host "${spec.host_id}" is not registered` };
  const never = judged.every(({ obstacles }) => obstacles.some(({ until }) => until === 'never'));
  return {
    kind: never ? 'impossible' : 'no_room',
    message: messageFor(spec, judged),
    ...(spec.seed === undefined || spec.seed.isExported
      ? {}
      : { hint: 'A snapshot that is exported starts on any host that fits: take it with "export": true.' }),
  };
}

function messageFor(spec: PlacementSpec, judged: readonly Judged[]): string {
  const reasonOf = (hostId: string | null | undefined) =>
    judged.find(({ host }) => host.id === hostId)?.obstacles[0]?.reason;
  if (spec.host_id !== undefined)
    return `pinned host cannot take this environment: host "${spec.host_id}" ${reasonOf(spec.host_id) ?? ''}`;
  if (spec.seed !== undefined && !spec.seed.isExported) {
    const { snapshotId, hostId } = spec.seed;
    const why = reasonOf(hostId);
    return why === undefined
      ? `snapshot ${snapshotId} is not exported and its host is not registered`
      : `snapshot ${snapshotId} is not exported, so only its host can start it: host "${hostId}" ${why}`;
  }
  const need = `no host has sufficient capacity: need ${needOf(spec)}`;
  const schedulable = judged.filter(({ host }) => host.state === 'active' && host.reachable);
  if (schedulable.length === 0) return `${need}, no eligible host fits`;
  if (wantsGpus(spec) && !schedulable.some(({ host }) => host.backend === GPU_BACKEND && servesGpus(host.gpus ?? {})))
    return `${need}, and none of ${schedulable.length} schedulable hosts serves gpus`;
  if (spec.network === true && schedulable.every(({ host }) => host.noNetwork !== undefined))
    return `no host can give it a network: ${schedulable.map(({ host }) => `host "${host.id}": ${host.noNetwork}`)[0]}`;
  if (schedulable.every(({ host }) => labelsMissing(spec, host).length > 0)) {
    const wanted = Object.entries(spec.labels ?? {})
      .map(([key, value]) => `${key}=${value}`)
      .sort();
    return `no host matches the requested placement labels: ${wanted.join(', ')} matched none of ${schedulable.length} schedulable hosts`;
  }
  return `${need}, no eligible host fits`;
}

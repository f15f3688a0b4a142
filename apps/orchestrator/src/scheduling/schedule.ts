/**
 * Where an environment goes. Pure and deterministic: same hosts, same answer. Gates in order (the first that fails is a host's reason):
 * active, reachable, region, arch, gpus, labels, image, seed, fits.
 * A host that holds the seed's bytes outranks the policy. Among the hosts that pass, `spread` takes the one with most free capacity (the default), `binpack` the one with least; ties go to the smaller id.
 */
import type { Placement, PlacementSpec, Rejection } from './placement.ts';

export interface Capacity {
  cpus: number;
  ram_mb: number;
  storage_gb: number;
  vm_count: number;
}

export interface SchedulableHost {
  id: string;
  state: 'active' | 'cordoned' | 'draining';
  /** Answered its last heartbeats. */
  reachable: boolean;
  region?: string | undefined;
  arch: string;
  labels: Record<string, string>;
  images: readonly string[];
  capacity: Capacity;
  /** Sum over the environments that hold a reservation. */
  used: Capacity;
}

export type PlacementPolicy = 'spread' | 'binpack';

/** `lasting`: no departure and no operator's hand changes it. */
interface Obstacle {
  reason: string;
  lasting: boolean;
}

export function schedule(
  spec: PlacementSpec,
  hosts: readonly SchedulableHost[],
  policy: PlacementPolicy = 'spread',
): Placement {
  if (hosts.length === 0) return { kind: 'no_room', message: 'no hosts registered', reasons: [] };
  const candidates = spec.host_id === undefined ? hosts : hosts.filter((host) => host.id === spec.host_id);
  if (candidates.length === 0)
    return {
      kind: 'no_such_host',
      message: `spec.host_id: host "${spec.host_id}" is not registered`,
      reasons: [],
    };
  const judged = candidates.map((host) => ({ host, obstacles: obstaclesOf(spec, host) }));
  const fitting = judged.filter(({ obstacles }) => obstacles.length === 0).map(({ host }) => host);
  const best = fitting.reduce<SchedulableHost | undefined>(
    (chosen, host) => (chosen === undefined || isBetter(host, chosen, policy, spec.seed?.hostId) ? host : chosen),
    undefined,
  );
  return best === undefined ? reject(spec, judged) : { kind: 'placed', hostId: best.id };
}

const free = (host: SchedulableHost): Capacity => ({
  cpus: host.capacity.cpus - host.used.cpus,
  ram_mb: host.capacity.ram_mb - host.used.ram_mb,
  storage_gb: host.capacity.storage_gb - host.used.storage_gb,
  vm_count: host.capacity.vm_count - host.used.vm_count,
});

function fits(spec: PlacementSpec, room: Capacity): boolean {
  return (
    spec.cpus <= room.cpus && spec.ram_mb <= room.ram_mb && spec.storage_gb <= room.storage_gb && room.vm_count >= 1
  );
}

function isBetter(
  host: SchedulableHost,
  chosen: SchedulableHost,
  policy: PlacementPolicy,
  holder: string | null | undefined,
): boolean {
  if (host.id === holder || chosen.id === holder) return host.id === holder;
  const score = ({ cpus, ram_mb }: Capacity) => cpus * 10_000 + ram_mb;
  const difference = score(free(host)) - score(free(chosen));
  if (difference === 0) return host.id < chosen.id;
  return policy === 'spread' ? difference > 0 : difference < 0;
}

const shapeText = (spec: PlacementSpec): string => `${spec.cpus}CPU/${spec.ram_mb}MB/${spec.storage_gb}GB`;

const labelsMissing = (spec: PlacementSpec, host: SchedulableHost): string[] =>
  Object.entries(spec.labels ?? {})
    .filter(([key, value]) => !Object.hasOwn(host.labels, key) || host.labels[key] !== value)
    .map(([key, value]) => `${key}=${value}`)
    .sort();

/** In the order of the gates. */
function obstaclesOf(spec: PlacementSpec, host: SchedulableHost): Obstacle[] {
  const found: Obstacle[] = [];
  const passing = (reason: string) => found.push({ reason, lasting: false });
  const lasting = (reason: string) => found.push({ reason, lasting: true });
  if (host.state !== 'active') passing(`is ${host.state}, not active`);
  if (!host.reachable) passing('is not reachable');
  if (spec.region !== undefined && spec.region !== host.region)
    lasting(`is in region "${host.region ?? ''}", the spec requires "${spec.region}"`);
  if (spec.arch !== undefined && spec.arch !== host.arch) lasting(`is ${host.arch}, the spec requires ${spec.arch}`);
  if ((spec.gpus ?? 0) > 0) lasting('does not serve gpus');
  const labels = labelsMissing(spec, host);
  if (labels.length > 0) lasting(`does not have labels ${labels.join(', ')}`);
  if (spec.image !== undefined && !host.images.includes(spec.image)) lasting(`does not have image "${spec.image}"`);
  if (spec.seed !== undefined && !spec.seed.isExported && spec.seed.hostId !== host.id)
    lasting(`does not hold snapshot ${spec.seed.snapshotId}, which is not exported`);
  if (!fits(spec, host.capacity)) lasting(`does not fit ${shapeText(spec)}`);
  else if (!fits(spec, free(host))) passing(`does not fit ${shapeText(spec)}`);
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

interface Judged {
  host: SchedulableHost;
  obstacles: Obstacle[];
}

function reject(spec: PlacementSpec, judged: Judged[]): Rejection {
  const reasons = judged.map(({ host, obstacles }) => ({ hostId: host.id, reason: obstacles[0]?.reason ?? '' }));
  const never = judged.every(({ obstacles }) => obstacles.some((obstacle) => obstacle.lasting));
  return {
    kind: never ? 'impossible' : 'no_room',
    message: messageFor(spec, judged),
    reasons,
    ...(spec.seed === undefined || spec.seed.isExported
      ? {}
      : { hint: 'A snapshot that is exported starts on any host that fits: take it with "export": true.' }),
  };
}

function messageFor(spec: PlacementSpec, judged: Judged[]): string {
  const [first] = judged;
  if (spec.host_id !== undefined && first !== undefined)
    return `pinned host cannot take this environment: host "${first.host.id}" ${first.obstacles[0]?.reason ?? ''}`;
  if (spec.seed !== undefined && !spec.seed.isExported) {
    const holder = judged.find(({ host }) => host.id === spec.seed?.hostId);
    const why = holder?.obstacles[0]?.reason;
    return holder === undefined || why === undefined
      ? `snapshot ${spec.seed.snapshotId} is not exported and its host is not registered`
      : `snapshot ${spec.seed.snapshotId} is not exported, so only its host can start it: host "${holder.host.id}" ${why}`;
  }
  const schedulable = judged.filter(({ host }) => host.state === 'active' && host.reachable);
  const withLabels = schedulable.filter(({ host }) => labelsMissing(spec, host).length === 0);
  if (schedulable.length > 0 && withLabels.length === 0) {
    const wanted = Object.entries(spec.labels ?? {})
      .map(([key, value]) => `${key}=${value}`)
      .sort();
    return `no host matches the requested placement labels: ${wanted.join(', ')} matched none of ${schedulable.length} schedulable hosts`;
  }
  const need = `no host has sufficient capacity: need ${shapeText(spec)}`;
  if ((spec.gpus ?? 0) > 0) return `${need}, and none of ${schedulable.length} schedulable hosts serves gpus`;
  return `${need}, no eligible host fits`;
}

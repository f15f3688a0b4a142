/**
 * What an environment is, without clock or adapter: defaults, its public form, what a request may ask for.
 * States and transitions are contract's `environmentTransitions`.
 */
import {
  DEFAULT_IMAGE,
  DEFAULT_MAX_RUNTIME_SECONDS,
  DEFAULT_SHAPE,
  type Environment,
  type EnvironmentEvent,
  EnvironmentSpec,
  type EnvironmentState,
  type Health,
  invalidField,
  MIG_PROFILE,
  NetworkPolicy,
} from '@fuse/contract';
import type { EnvironmentRow, EventRow } from '../db/schema.ts';
import type { PlacementSpec } from '../scheduling/placement.ts';

/** States that hold a reservation and may have a VM. */
export const isGone = (state: EnvironmentState): boolean => state === 'destroyed' || state === 'failed';

/** Defaults put in, zeros meaning "not given", spellings made one. */
export interface EffectiveSpec extends PlacementSpec {
  image: string;
  max_runtime_seconds: number;
  idle_timeout_seconds: number;
}

const ARCHITECTURES: Record<string, string> = { amd64: 'amd64', x86_64: 'amd64', arm64: 'arm64', aarch64: 'arm64' };
const given = <T>(value: T | undefined, nothing: T): value is T => value !== undefined && value !== nothing;

export function effectiveSpec(spec: EnvironmentSpec): EffectiveSpec {
  return {
    cpus: spec.cpus || DEFAULT_SHAPE.cpus,
    ram_mb: spec.ram_mb || DEFAULT_SHAPE.ram_mb,
    storage_gb: spec.storage_gb || DEFAULT_SHAPE.storage_gb,
    image: spec.image || DEFAULT_IMAGE,
    max_runtime_seconds: spec.max_runtime_seconds || DEFAULT_MAX_RUNTIME_SECONDS,
    idle_timeout_seconds: spec.idle_timeout_seconds ?? 0,
    ...(given(spec.region, '') ? { region: spec.region } : {}),
    ...(given(spec.arch, '') ? { arch: normalArch(spec.arch) } : {}),
    ...(given(spec.gpus, 0) ? { gpus: spec.gpus } : {}),
    ...(given(spec.gpu_kind, '') ? { gpu_kind: spec.gpu_kind } : {}),
    ...(given(spec.gpu_profile, '') ? { gpu_profile: spec.gpu_profile.toLowerCase() } : {}),
    ...(given(spec.host_id, '') ? { host_id: spec.host_id } : {}),
    ...(spec.labels === undefined ? {} : { labels: spec.labels }),
  };
}

/** One spelling of each; undefined for what is none. */
export const knownArch = (arch: string): string | undefined =>
  Object.hasOwn(ARCHITECTURES, arch.toLowerCase()) ? ARCHITECTURES[arch.toLowerCase()] : undefined;

/** What is known as this one, in lower case. */
export const spellingsOf = (arch: string): string[] =>
  Object.entries(ARCHITECTURES).flatMap(([spelling, known]) => (known === arch ? [spelling] : []));

function normalArch(arch: string): string {
  const known = knownArch(arch);
  if (known === undefined) throw invalidField('spec.arch', 'must be amd64 or arm64');
  return known;
}

/** Cards that cannot be divided. */
const WITHOUT_MIG = ['v100', 't4', 'p100', 'p40', 'k80', 'rtx', 'gtx', 'titan', 'l4', 'l40', 'l40s'];

/** What a schema alone cannot say. First failure wins, in the API's order. */
export function checkSpec(spec: EnvironmentSpec): void {
  checkGpus(spec);
  effectiveSpec(spec);
}

export function checkGpus(spec: Pick<EnvironmentSpec, 'gpus' | 'gpu_kind' | 'gpu_profile'>): void {
  if (given(spec.gpu_profile, '')) {
    if (!MIG_PROFILE.test(spec.gpu_profile)) throw invalidField('spec.gpu_profile', 'must look like "1g.10gb"');
    if (!given(spec.gpus, 0))
      throw invalidField('spec.gpu_profile', 'needs spec.gpus', 'Set "gpus": how many instances of the profile.');
    const kind = spec.gpu_kind?.toLowerCase() ?? '';
    if (WITHOUT_MIG.some((card) => kind.includes(card)))
      throw invalidField('spec.gpu_profile', `a "${spec.gpu_kind}" has no MIG profiles`);
  }
  if (given(spec.gpu_kind, '') && !given(spec.gpus, 0))
    throw invalidField('spec.gpu_kind', 'needs spec.gpus', 'Set "gpus": how many GPUs of the kind.');
}

/** Zero and empty fields are left out; the shape and image are those that it really has. In the schema's order, whatever order the row keeps. */
function publicSpec(row: EnvironmentRow): EnvironmentSpec {
  const asked = Object.entries(row.spec).filter(([, value]) => value !== 0 && value !== '');
  const { cpus, ram_mb, storage_gb, image } = row;
  const spec = EnvironmentSpec.parse({ ...Object.fromEntries(asked), cpus, ram_mb, storage_gb, image });
  if (spec.arch !== undefined) spec.arch = knownArch(spec.arch);
  if (spec.gpu_profile !== undefined) spec.gpu_profile = spec.gpu_profile.toLowerCase();
  return spec;
}

/** In the order of the contract's schema. `publicAddress`: the bare host:port at which clients reach us. */
export function toEnvironment(row: EnvironmentRow, publicAddress: string): Environment {
  return {
    id: row.id,
    state: row.state,
    // Given back as soon as its destruction begins.
    task_id: row.state === 'destroying' ? '' : row.task_id,
    ...(row.host_id === null ? {} : { host_id: row.host_id }),
    url: row.url,
    spec: publicSpec(row),
    created_at: row.created_at.toISOString(),
    updated_at: row.updated_at.toISOString(),
    ...(row.error === null ? {} : { error: row.error }),
    ...(row.expose === null || row.expose.length === 0 ? {} : { endpoints: endpointsOf(row, publicAddress) }),
    ...(row.health === null ? {} : { health: row.health }),
    ...(row.seed_snapshot_id === null ? {} : { seed_snapshot_id: row.seed_snapshot_id }),
    ...(row.paused_at === null ? {} : { paused_at: row.paused_at.toISOString() }),
    idle_action: row.idle_action,
    auto_resume: row.auto_resume,
    ...(row.checkpoint_interval_seconds === 0
      ? {}
      : { checkpoint_interval_seconds: row.checkpoint_interval_seconds, checkpoint_keep: row.checkpoint_keep }),
    ...(Object.keys(row.labels).length === 0 ? {} : { labels: row.labels }),
    ...(row.expires_at === null ? {} : { expires_at: row.expires_at.toISOString() }),
    ...(row.queue_deadline === null ? {} : { queued: queuedOf(row, row.queue_deadline) }),
    network: NetworkPolicy.parse(row.network), // in the schema's order of fields
  };
}

const queuedOf = (row: EnvironmentRow, until: Date): NonNullable<Environment['queued']> => ({
  since: row.created_at.toISOString(),
  until: until.toISOString(),
  reason: row.placement?.reason ?? '',
});

/** Where the tunnels of its exposed ports are. */
function endpointsOf({ id, expose }: EnvironmentRow, publicAddress: string): NonNullable<Environment['endpoints']> {
  const base = `${publicAddress}/v1/environments/${encodeURIComponent(id)}/ports`;
  return (expose ?? []).map(({ as, port }) => ({
    ...(as === undefined ? {} : { as }),
    url: `${base}/${port}/connect`,
    port,
  }));
}

/** What a transition, or a change of its health, leaves in `events`. */
export interface StateEventData {
  state: EnvironmentState;
  vm_id: string;
  url?: string;
  error?: string;
  restored_from?: string;
  health?: Health;
  step?: NonNullable<EnvironmentEvent['step']>;
  network?: NonNullable<EnvironmentEvent['network']>;
}

const kinds = ['health', 'step', 'network'] as const;

export function toEnvironmentEvent(event: EventRow): EnvironmentEvent {
  const { state, vm_id, url, error, restored_from, health, step, network } = event.data as unknown as StateEventData; // written as that only
  return {
    id: eventId(event.id),
    event: kinds.find((kind) => kind === event.kind) ?? 'state',
    vm_id,
    state,
    ...(url === undefined ? {} : { url }),
    ...(error === undefined ? {} : { error }),
    ...(restored_from === undefined ? {} : { restored_from }),
    ...(health === undefined ? {} : { health }),
    ...(step === undefined ? {} : { step }),
    ...(network === undefined ? {} : { network }),
    updated_at: event.at.toISOString(),
  };
}

/** 32 hex digits on the wire, the row's number inside. */
export const eventId = (id: number): string => id.toString(16).padStart(32, '0');
export function parseEventId(text: string | undefined): number | undefined {
  if (text === undefined || !/^[0-9a-f]{32}$/.test(text)) return undefined;
  const id = Number.parseInt(text, 16);
  return Number.isSafeInteger(id) ? id : undefined;
}

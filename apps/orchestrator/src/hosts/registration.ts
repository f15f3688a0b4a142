/** What a registration may say. Pure. */
import {
  AppError,
  absentIfNull,
  DeclaredCapacity,
  invalidField,
  Labels,
  MIG_PROFILE,
  RegisterHost,
} from '@fuse/contract';
import type { HostCapacityReport } from '@fuse/host-protocol';
import { z } from 'zod';
import type { GpuCapacity } from '../scheduling/gpus.ts';
import type { Capacity } from '../scheduling/schedule.ts';
import { AMOUNTS, measuredGpus } from './host.ts';

const amount = absentIfNull(z.int32());

/** The shape alone: what is wrong with what it says is told in the order of api.md, not in that of the fields. */
export const GivenRegistration = RegisterHost.extend({
  id: absentIfNull(z.string().max(256)),
  url: absentIfNull(z.string().max(2_048)),
  backend: absentIfNull(z.string().max(64)),
  labels: absentIfNull(z.record(z.string(), z.string())),
  capacity: absentIfNull(
    DeclaredCapacity.extend({ cpus: amount, ram_mb: amount, storage_gb: amount, vm_count: amount, gpus: amount }),
  ),
});
export type GivenRegistration = z.infer<typeof GivenRegistration>;

export interface Registration extends GivenRegistration {
  id: string;
  url: string;
  backend: string;
  labels: Record<string, string>;
  arch: Arch | undefined;
}

type Arch = 'amd64' | 'arm64';
const ARCHITECTURES: Record<string, Arch> = {
  amd64: 'amd64',
  x86_64: 'amd64',
  arm64: 'arm64',
  aarch64: 'arm64',
};

/** Everything that can be told without asking the host. */
export function checkRegistration(given: GivenRegistration): Registration {
  const { id = '', url = '', capacity: { gpus = 0, mig_profiles = {} } = {} } = given;
  if (id === '' || url === '')
    throw new AppError('invalid_argument', 'id and url are required', { details: { field: id === '' ? 'id' : 'url' } });
  checkHostUrl(url);
  const backend = given.backend || DEFAULT_BACKEND;
  if (!BACKENDS.includes(backend)) throw invalidField('backend', `must be ${BACKENDS.join(' or ')}`);
  if (gpus > 0 && backend !== GPU_BACKEND) throw invalidField('capacity.gpus', `needs backend ${GPU_BACKEND}`);
  if (gpus < 0) throw invalidField('capacity.gpus', 'must not be negative');
  const arch = declaredArch(given);
  const profiles = Object.entries(mig_profiles);
  if (profiles.length > 0 && backend !== GPU_BACKEND)
    throw invalidField('capacity.mig_profiles', `needs backend ${GPU_BACKEND}`);
  const labels = checkLabels(given);
  for (const [profile, count] of profiles) {
    if (!MIG_PROFILE.test(profile)) throw invalidField('capacity.mig_profiles', `"${profile}" is not like 1g.10gb`);
    if (count <= 0) throw invalidField(`capacity.mig_profiles.${profile}`, 'must be over 0');
  }
  for (const key of AMOUNTS)
    if ((given.capacity?.[key] ?? 0) < 0) throw invalidField(`capacity.${key}`, 'must not be negative');
  const capacity = { ...given.capacity, mig_profiles: inOneSpelling(mig_profiles) };
  return { ...given, id, url, backend, arch, labels, capacity };
}

const DEFAULT_BACKEND = 'firecracker';
/** The one that passes gpus on. */
const GPU_BACKEND = 'qemu';
const BACKENDS: readonly string[] = [DEFAULT_BACKEND, GPU_BACKEND];

/** As environments ask for them. */
function inOneSpelling(profiles: Record<string, number>): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const [profile, count] of Object.entries(profiles)) {
    const known = profile.toLowerCase();
    counts[known] = (counts[known] ?? 0) + count;
  }
  return counts;
}

function checkLabels({ labels = {} }: GivenRegistration): Record<string, string> {
  const parsed = Labels.safeParse(labels);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const said = issue?.code === 'invalid_key' ? issue.issues[0]?.message : issue?.message;
  throw invalidField(['labels', ...(issue?.path ?? [])].map(String).join('.'), said ?? 'invalid');
}

function checkHostUrl(text: string): void {
  const hint = 'Give the host agent’s base URL, such as http://10.0.0.7:8090.';
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined) throw invalidField('url', 'is not a URL', hint);
  if (url.protocol !== 'http:' && url.protocol !== 'https:') throw invalidField('url', 'must be http or https', hint);
  if (url.username !== '' || url.password !== '') throw invalidField('url', 'must not hold credentials', hint);
  if (/[?#]/.test(text)) throw invalidField('url', 'must not have a query or a fragment', hint);
}

function declaredArch({ capacity }: GivenRegistration): Arch | undefined {
  const arch = capacity?.arch?.toLowerCase();
  if (arch === undefined || arch === '') return undefined;
  const known = Object.hasOwn(ARCHITECTURES, arch) ? ARCHITECTURES[arch] : undefined;
  if (known === undefined) throw invalidField('capacity.arch', 'must be amd64 or arm64');
  return known;
}

/** Declared amounts stand, with a warning when the host has less; what is not declared is what it reports. */
export function fillCapacity(
  { capacity: declared }: Registration,
  report: HostCapacityReport | undefined,
  warnings: string[],
): { capacity: Capacity; declared: string[] } {
  const capacity: Capacity = { cpus: 0, ram_mb: 0, storage_gb: 0, vm_count: 0 };
  for (const key of AMOUNTS) {
    capacity[key] = declared?.[key] || report?.[key] || 0;
    if (capacity[key] <= 0) throw invalidField(`capacity.${key}`, 'must be over 0');
    warnIfOver(key, declared?.[key], report?.[key], warnings);
  }
  return { capacity, declared: AMOUNTS.filter((key) => (declared?.[key] ?? 0) > 0) };
}

/** Likewise: what is declared stands, what it reports is beside it. Devices and instances are what it says. */
export function fillGpus(
  { capacity: { gpus, gpu_kind, mig_profiles = {} } = {} }: Registration,
  report: HostCapacityReport | undefined,
  warnings: string[],
): { capacity: GpuCapacity; declared: string[] } {
  warnIfOver('gpus', gpus, report?.gpus, warnings);
  if (report !== undefined && gpu_kind && gpu_kind !== report.gpu_kind)
    warnings.push(`declared gpu_kind (${gpu_kind}) differs from probed host gpu_kind (${report.gpu_kind})`);
  const given = {
    ...(gpus ? { gpus } : {}),
    ...(gpu_kind ? { gpu_kind } : {}),
    ...(Object.keys(mig_profiles).length === 0 ? {} : { mig_profiles }),
  };
  const declared = ['gpus', 'gpu_kind'].filter((key) => Object.hasOwn(given, key));
  return { capacity: report === undefined ? given : measuredGpus({ declared, gpu_capacity: given }, report), declared };
}

function warnIfOver(what: string, declared: number | undefined, probed: number | undefined, warnings: string[]): void {
  if (declared !== undefined && probed !== undefined && declared > probed)
    warnings.push(`declared ${what} (${declared}) exceeds probed host capacity (${probed})`);
}

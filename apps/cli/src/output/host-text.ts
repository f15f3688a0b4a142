import type { Host } from '@fuse/sdk';
import { formatAge, properties } from './format.ts';

export const hostHeadings = ['ID', 'STATE', 'REGION', 'CPUS', 'RAM MB', 'STORAGE GB', 'VMS', 'SEEN', 'URL'] as const;

const amounts = ['cpus', 'ram_mb', 'storage_gb', 'vm_count'] as const;
/** Reserved, of what there is. */
const used = ({ allocated, capacity }: Host, name: (typeof amounts)[number]): string =>
  `${allocated[name]}/${capacity[name]}`;

export const hostRow =
  (nowMs: number) =>
  (host: Host): string[] => [
    host.id,
    host.state,
    host.region ?? '',
    ...amounts.map((name) => used(host, name)),
    formatAge(nowMs - Date.parse(host.last_seen)),
    host.url,
  ];

export function hostText(host: Host): string {
  const { capacity, desired_state, state, labels = {} } = host;
  return properties({
    id: host.id,
    state: desired_state === undefined || desired_state === state ? state : `${state} (chosen: ${desired_state})`,
    url: host.url,
    region: host.region,
    backend: host.backend,
    arch: capacity.arch,
    labels: labelsText(labels),
    cpus: used(host, 'cpus'),
    'ram mb': used(host, 'ram_mb'),
    'storage gb': used(host, 'storage_gb'),
    'free disk gb': host.free_storage_gb?.toString(),
    vms: used(host, 'vm_count'),
    network: host.no_network === undefined ? undefined : `none: ${host.no_network}`,
    gpus: capacity.gpus === undefined || capacity.gpus === 0 ? undefined : gpusText(capacity),
    seen: host.last_seen,
    created: host.created_at,
    updated: host.updated_at,
  });
}

const gpusText = ({ gpus, gpu_kind }: Host['capacity']): string =>
  [gpus, gpu_kind].filter((part) => part !== undefined && part !== '').join(' ');

export const labelsText = (labels: Readonly<Record<string, string>>): string | undefined =>
  Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(' ') || undefined;

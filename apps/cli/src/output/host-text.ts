import type { Host } from '@fuse/sdk';
import { formatAge, printable, properties } from './format.ts';

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
    gpus: gpusText(host),
    mig: profilesText(host),
    devices: devicesText(capacity),
    seen: host.last_seen,
    created: host.created_at,
    updated: host.updated_at,
  });
}

function gpusText({ allocated, capacity: { gpus = 0, gpu_kind = '' } }: Host): string | undefined {
  return gpus === 0 ? undefined : `${allocated.gpus ?? 0}/${gpus} ${printable(gpu_kind)}`.trim();
}

/** Instances of each profile, told by the host or declared. */
function profilesText({ allocated, capacity: { mig_profiles = {}, mig_instances = [] } }: Host): string | undefined {
  const counts = new Map(mig_instances.length === 0 ? Object.entries(mig_profiles) : []);
  for (const { profile = '' } of mig_instances) counts.set(profile, (counts.get(profile) ?? 0) + 1);
  const parts = [...counts].map(
    ([profile, count]) => `${printable(profile)} ${allocated.mig_profiles?.[profile] ?? 0}/${count}`,
  );
  return parts.join(', ') || undefined;
}

const devicesText = ({ gpu_devices = [] }: Host['capacity']): string | undefined =>
  gpu_devices
    .map(({ uuid, pci_bus_id, model }) => printable([pci_bus_id ?? uuid, model].filter((part) => part).join(' ')))
    .join('; ') || undefined;

export const labelsText = (labels: Readonly<Record<string, string>>): string | undefined =>
  Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(' ') || undefined;

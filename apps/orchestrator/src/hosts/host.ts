/** What a host is, of what its row says. Pure. */
import type { Host, hostStates } from '@fuse/contract';
import type { HostCapacityReport } from '@fuse/host-protocol';
import type { HostRow } from '../db/schema.ts';
import { allocatedGpus, type GpuCapacity } from '../scheduling/gpus.ts';
import type { Capacity, Usage } from '../scheduling/schedule.ts';

export const AMOUNTS = ['cpus', 'ram_mb', 'storage_gb', 'vm_count'] as const;
const NOTHING: Capacity = { cpus: 0, ram_mb: 0, storage_gb: 0, vm_count: 0 };

export type ShownState = (typeof hostStates)[number];

/** That it is lost or unreachable is shown in place of what its operator chose. */
export function shownState({ state, unreachable_at, lost_at }: HostRow): ShownState {
  if (lost_at !== null) return 'lost';
  return unreachable_at === null ? state : 'unreachable';
}

/** Declared amounts stand; the others are what it says now, unless that is nothing. */
export function measuredCapacity(row: HostRow, report: HostCapacityReport): Capacity {
  const follow = (key: (typeof AMOUNTS)[number]) => (row.declared.includes(key) ? row[key] : report[key] || row[key]);
  return {
    cpus: follow('cpus'),
    ram_mb: follow('ram_mb'),
    storage_gb: follow('storage_gb'),
    vm_count: follow('vm_count'),
  };
}

/** Likewise. `declared`: of the row, or what is declared anew. */
export function measuredGpus(
  { declared, gpu_capacity: had }: Pick<HostRow, 'declared' | 'gpu_capacity'>,
  report: HostCapacityReport,
): GpuCapacity {
  const { gpu_devices: devices = [], mig_instances: instances = [] } = report;
  const gpus = declared.includes('gpus') ? had.gpus : report.gpus || devices.length;
  const kind = declared.includes('gpu_kind') ? had.gpu_kind : report.gpu_kind;
  return {
    ...(gpus ? { gpus } : {}),
    ...(kind ? { gpu_kind: kind } : {}),
    ...(had.mig_profiles === undefined ? {} : { mig_profiles: had.mig_profiles }),
    ...(devices.length === 0 ? {} : { gpu_devices: devices }),
    ...(instances.length === 0 ? {} : { mig_instances: instances }),
  };
}

export function toHost(row: HostRow, { gpus = [], ...used }: Usage = NOTHING): Host {
  const { cpus, ram_mb, storage_gb, vm_count } = row;
  return {
    id: row.id,
    url: row.url,
    state: shownState(row),
    desired_state: row.state,
    capacity: { cpus, ram_mb, storage_gb, vm_count, arch: row.arch, ...row.gpu_capacity },
    allocated: { ...used, ...allocatedGpus(gpus) },
    ...(row.free_storage_gb === null ? {} : { free_storage_gb: row.free_storage_gb }),
    ...(row.no_network === null ? {} : { no_network: row.no_network }),
    ...(row.region === null ? {} : { region: row.region }),
    backend: row.backend,
    ...(Object.keys(row.labels).length === 0 ? {} : { labels: row.labels }),
    last_seen: row.last_seen.toISOString(),
    created_at: row.created_at.toISOString(),
    updated_at: row.updated_at.toISOString(),
  };
}

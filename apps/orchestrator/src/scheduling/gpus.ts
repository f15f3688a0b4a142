/**
 * Which of a host's GPUs an environment gets. Pure and deterministic: whatever order they come in, the same ones.
 *
 * Whole ones: where the host tells its devices, free ones whose model contains the kind that is asked for, in any case; elsewhere their number and exactly that
 * kind. A device that is given away in instances is never given away whole, nor the other way round, and devices of one IOMMU group never to two environments.
 * Instances (`gpu_profile`): where it tells them, free ones of that profile, their kind being their own, their device's model or the host's; elsewhere the
 * declared number of each profile.
 */
import type { GpuDevice, HostCapacity, MigInstance } from '@fuse/contract';

export type GpuCapacity = Pick<HostCapacity, 'gpus' | 'gpu_kind' | 'mig_profiles' | 'gpu_devices' | 'mig_instances'>;

/** What an environment holds: so many whole ones, or instances of a profile. */
export interface GpuHold {
  gpus: number;
  profile?: string | undefined;
  /** By their uuid, or, of a device without one, by its pci_bus_id; none where the host does not tell them. */
  devices: string[];
}

export interface WantedGpus {
  gpus?: number;
  gpu_kind?: string;
  /** In lower case. */
  gpu_profile?: string;
}

export const wantsGpus = ({ gpus = 0 }: WantedGpus): boolean => gpus > 0;

/** Whether it has any to give, to anybody. */
export const servesGpus = ({ gpus = 0, mig_profiles = {}, gpu_devices = [], mig_instances = [] }: GpuCapacity) =>
  gpus > 0 || gpu_devices.length > 0 || mig_instances.length > 0 || Object.keys(mig_profiles).length > 0;

/** Undefined: there are not so many beside what is held. */
export function chooseGpus(wanted: WantedGpus, host: GpuCapacity, held: readonly GpuHold[]): GpuHold | undefined {
  const { gpus = 0, gpu_profile: profile } = wanted;
  const free = profile === undefined ? freeDevices(wanted, host, held) : freeInstances(profile, wanted, host, held);
  if (free.count < gpus) return undefined;
  const devices = free.ids.slice(0, gpus);
  return { gpus, ...(profile === undefined ? {} : { profile }), devices };
}

interface Free {
  count: number;
  /** Empty where the host does not tell them. */
  ids: string[];
}

const idOf = ({ uuid, pci_bus_id }: GpuDevice): string | undefined => uuid || pci_bus_id || undefined;
/** Under either it may be held: a host that tells no uuid may do so later, and the other way round. */
const namesOf = ({ uuid, pci_bus_id }: GpuDevice): string[] => [uuid, pci_bus_id].flatMap((name) => name || []);
/** What is told twice is one. */
const told = (ids: readonly (string | undefined)[]): string[] => [...new Set(ids.flatMap((id) => id ?? []))].sort();
const contains = (model: string | undefined, kind: string): boolean =>
  model?.toLowerCase().includes(kind.toLowerCase()) === true;

function freeDevices({ gpu_kind: kind }: WantedGpus, host: GpuCapacity, held: readonly GpuHold[]): Free {
  const whole = held.filter(({ profile }) => profile === undefined);
  const left = (host.gpus ?? 0) - whole.reduce((sum, { gpus }) => sum + gpus, 0);
  const { gpu_devices: devices = [], mig_instances = [] } = host;
  if (devices.length === 0) return { count: kind === undefined || kind === host.gpu_kind ? left : 0, ids: [] };
  const taken = new Set(whole.flatMap((one) => one.devices));
  const isTaken = (device: GpuDevice) => namesOf(device).some((name) => taken.has(name));
  const takenGroups = new Set(devices.filter(isTaken).flatMap(({ iommu_group }) => iommu_group || []));
  const parents = new Set(mig_instances.map(({ parent_gpu_uuid }) => parent_gpu_uuid));
  const free = devices.filter(
    (device) =>
      !isTaken(device) &&
      !takenGroups.has(device.iommu_group ?? '') &&
      device.mig_mode?.toLowerCase() !== 'enabled' &&
      !namesOf(device).some((name) => parents.has(name)) &&
      (kind === undefined || contains(device.model, kind)),
  );
  const ids = told(free.map(idOf));
  return { count: Math.min(left, ids.length), ids };
}

function freeInstances(
  profile: string,
  { gpu_kind: kind }: WantedGpus,
  host: GpuCapacity,
  held: readonly GpuHold[],
): Free {
  const { mig_instances: instances = [], mig_profiles: profiles = {} } = host;
  if (instances.length === 0) {
    const isKind = kind === undefined || kind === host.gpu_kind;
    const taken = held.reduce((sum, one) => sum + (one.profile === profile ? one.gpus : 0), 0);
    return { count: isKind ? (Object.hasOwn(profiles, profile) ? (profiles[profile] ?? 0) : 0) - taken : 0, ids: [] };
  }
  const taken = new Set(held.flatMap(({ devices }) => devices));
  const parentOf = ({ parent_gpu_uuid: name = '' }: MigInstance) => {
    const parent = host.gpu_devices?.find((device) => namesOf(device).includes(name));
    return parent === undefined ? [name] : namesOf(parent);
  };
  const free = instances.filter(
    (instance) =>
      instance.profile?.toLowerCase() === profile &&
      ![instance.uuid ?? '', ...parentOf(instance)].some((name) => taken.has(name)) &&
      (kind === undefined || contains(kindOf(instance, host), kind)),
  );
  const ids = told(free.map(({ uuid }) => uuid || undefined));
  return { count: ids.length, ids };
}

function kindOf({ kind, parent_gpu_uuid }: MigInstance, { gpu_devices = [], gpu_kind }: GpuCapacity) {
  const parent = gpu_devices.find((device) => namesOf(device).includes(parent_gpu_uuid ?? ''));
  return kind || parent?.model || gpu_kind;
}

/** As a host shows it. */
export function allocatedGpus(
  held: readonly GpuHold[],
): Pick<HostCapacity, 'gpus' | 'mig_profiles' | 'mig_instance_uuids'> {
  const profiles = new Map<string, number>();
  let whole = 0;
  for (const { gpus, profile } of held) {
    if (profile === undefined) whole += gpus;
    else profiles.set(profile, (profiles.get(profile) ?? 0) + gpus);
  }
  const uuids = held.flatMap(({ profile, devices }) => (profile === undefined ? [] : devices)).sort();
  return {
    ...(whole === 0 ? {} : { gpus: whole }),
    ...(profiles.size === 0 ? {} : { mig_profiles: Object.fromEntries([...profiles].sort()) }),
    ...(uuids.length === 0 ? {} : { mig_instance_uuids: uuids }),
  };
}

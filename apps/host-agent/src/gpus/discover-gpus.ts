/**
 * What sysfs tells of devices that can be passed through to VMs: display controllers that are bound to vfio-pci, in an IOMMU group that nothing else of the
 * host uses; and mediated devices that are instances of a divided card, by the name that its driver gives their type ("NVIDIA A100-1-5C" is 1g.5gb). Everything else that is known of a
 * card only its own driver knows, which does not run here.
 */
import { readdir, readFile, readlink } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { GpuDevice, MigInstance } from '@fuse/contract';
import { DEVICE_UUID, PCI_ADDRESS } from './config.ts';
import { pciModel } from './pci-ids.ts';

interface Passable {
  /** Its name in sysfs: a PCI address, or a uuid. */
  name: string;
  group: string;
}
export type PassableGpu = Passable & { bus: 'pci'; device: GpuDevice };
export type PassableInstance = Passable & { bus: 'mdev'; instance: MigInstance };

const DISPLAY_CONTROLLER = '0x03';
/** Of other devices of the group: with these the kernel leaves it to us. */
const PASSIVE_DRIVERS: readonly (string | undefined)[] = [undefined, 'vfio-pci', 'pci-stub', 'pcieport'];

export async function discoverGpus(sysfs: string): Promise<PassableGpu[]> {
  const directory = join(sysfs, 'bus/pci/devices');
  const found: PassableGpu[] = [];
  for (const name of (await namesIn(directory)).filter((each) => PCI_ADDRESS.test(each))) {
    const path = join(directory, name);
    if (!(await textOf(path, 'class')).startsWith(DISPLAY_CONTROLLER)) continue;
    const group = await linkOf(path, 'iommu_group');
    if ((await linkOf(path, 'driver')) !== 'vfio-pci' || group === undefined) continue;
    if (!(await isLeftToUs(sysfs, group))) continue;
    const [vendor, id] = [await hexOf(path, 'vendor'), await hexOf(path, 'device')];
    const device = { model: await pciModel(vendor, id), pci_bus_id: name, iommu_group: group };
    found.push({ bus: 'pci', name, group, device });
  }
  return found;
}

export async function discoverInstances(sysfs: string): Promise<PassableInstance[]> {
  const directory = join(sysfs, 'bus/mdev/devices');
  const found: PassableInstance[] = [];
  for (const name of (await namesIn(directory)).filter((each) => DEVICE_UUID.test(each))) {
    const path = join(directory, name);
    const group = await linkOf(path, 'iommu_group');
    const instance = instanceOf(await textOf(path, 'mdev_type/name'));
    if (group === undefined || instance === undefined) continue;
    found.push({ bus: 'mdev', name, group, instance: { uuid: name, ...instance } });
  }
  return found;
}

/** Undefined: it shares its card by time, and is no instance. */
export function instanceOf(typeName: string): { profile: string; kind: string } | undefined {
  const parts = /^(.+)-([1-7])-(\d{1,4})C(ME)?$/i.exec(typeName);
  if (parts === null) return undefined;
  const [, kind = '', slices, gigabytes, media] = parts;
  return { profile: `${slices}g.${gigabytes}gb${media === undefined ? '' : '+me'}`, kind: kind.slice(0, 256) };
}

async function isLeftToUs(sysfs: string, group: string): Promise<boolean> {
  const directory = join(sysfs, 'kernel/iommu_groups', group, 'devices');
  for (const name of await namesIn(directory))
    if (!PASSIVE_DRIVERS.includes(await linkOf(join(directory, name), 'driver'))) return false;
  return true;
}

/** None where there is no such directory: without an IOMMU, or mediated devices. */
const namesIn = async (directory: string): Promise<string[]> => (await readdir(directory).catch(gone(() => []))).sort();
const textOf = async (path: string, name: string): Promise<string> =>
  (await readFile(join(path, name), 'utf8').catch(gone(() => ''))).trim();
const hexOf = async (path: string, name: string): Promise<string> => (await textOf(path, name)).replace(/^0x/, '');

async function linkOf(path: string, name: string): Promise<string | undefined> {
  const target = await readlink(join(path, name)).catch(gone(() => undefined));
  return target === undefined ? undefined : basename(target);
}

/** Devices come and go while they are looked at. */
const gone =
  <T>(instead: () => T) =>
  (error: NodeJS.ErrnoException): T => {
    if (['ENOENT', 'ENODEV', 'EIO'].includes(error.code ?? '')) return instead();
    throw error;
  };

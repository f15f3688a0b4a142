/** The devices that this host passes through to VMs, looked for anew each time: they are bound and unbound, carved and removed, while it runs. */
import { join } from 'node:path';
import { AppError, MAX_HOST_GPUS } from '@fuse/contract';
import type { HostCapacityReport, VmGpus } from '@fuse/host-protocol';
import type { PassedDevice } from '../vmm/driver.ts';
import type { GpuConfig } from './config.ts';
import { discoverGpus, discoverInstances, type PassableGpu, type PassableInstance } from './discover-gpus.ts';

export class Gpus {
  readonly #config: GpuConfig;

  constructor(config: GpuConfig) {
    this.#config = config;
  }

  async report(): Promise<Pick<HostCapacityReport, 'gpus' | 'gpu_kind' | 'gpu_devices' | 'mig_instances'>> {
    const { gpus, instances } = await this.#found();
    const models = new Set(gpus.map(({ device }) => device.model));
    const [model = ''] = models;
    return {
      gpus: gpus.length,
      gpu_kind: models.size === 1 ? model : '',
      ...(gpus.length === 0 ? {} : { gpu_devices: gpus.map(({ device }) => device) }),
      ...(instances.length === 0 ? {} : { mig_instances: instances.map(({ instance }) => instance) }),
    };
  }

  /** Those that a VM is to have; 503 when one is not here. */
  async passThrough({ gpus: wanted, profile, devices }: VmGpus): Promise<PassedDevice[]> {
    if (devices.length !== wanted)
      throw notHere(`this host was asked for ${wanted} of its GPUs and told ${devices.length} of them`);
    const { gpus, instances } = await this.#found();
    const here: readonly (PassableGpu | PassableInstance)[] = profile === undefined ? gpus : instances;
    return devices.map((id) => {
      const found = here.find(({ name }) => name === id);
      if (found === undefined) throw notHere(`this host has no GPU "${id}" to pass through`);
      const { bus, name, group } = found;
      const { vfio } = this.#config;
      return { bus, name, group, nodePath: join(vfio, group), containerPath: join(vfio, 'vfio') };
    });
  }

  async #found(): Promise<{ gpus: PassableGpu[]; instances: PassableInstance[] }> {
    const { choice, sysfs } = this.#config;
    if (choice === 'off') return { gpus: [], instances: [] };
    const isChosen = ({ name }: { name: string }) => choice === 'auto' || choice.includes(name);
    const [gpus, instances] = await Promise.all([discoverGpus(sysfs), discoverInstances(sysfs)]);
    return {
      gpus: gpus.filter(isChosen).slice(0, MAX_HOST_GPUS),
      instances: instances.filter(isChosen).slice(0, MAX_HOST_GPUS),
    };
  }
}

const notHere = (message: string): AppError =>
  new AppError('unavailable', message, {
    details: { reason: 'gpus' },
    hint: 'What can be passed through is in its capacity: display controllers bound to vfio-pci, the whole IOMMU group with them.',
  });

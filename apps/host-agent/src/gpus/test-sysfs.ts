/** For tests: as much of sysfs and /dev/vfio as a host's GPUs are found in, in a directory of the test's. */
import { execFile } from 'node:child_process';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import type { GpuConfig } from './config.ts';

export interface TestPciDevice {
  address: string;
  class?: string;
  ids?: [vendor: string, device: string];
  driver?: string;
  group?: string;
}

export class TestSysfs {
  readonly config: GpuConfig;

  constructor(directory: string) {
    this.config = { choice: 'auto', sysfs: join(directory, 'sys'), vfio: join(directory, 'vfio') };
  }

  async addPci({
    address,
    class: kind = '0x030200',
    ids = ['10de', 'ffff'],
    driver,
    group,
  }: TestPciDevice): Promise<void> {
    const path = `devices/pci0000:00/${address}`;
    await this.#write(`${path}/class`, `${kind}\n`);
    await this.#write(`${path}/vendor`, `0x${ids[0]}\n`);
    await this.#write(`${path}/device`, `0x${ids[1]}\n`);
    if (driver !== undefined) await this.#link(`bus/pci/drivers/${driver}`, `${path}/driver`);
    await this.#link(path, `bus/pci/devices/${address}`);
    if (group !== undefined) await this.#intoGroup(group, path, address);
  }

  async addMediated({ uuid, type, group }: { uuid: string; type: string; group: string }): Promise<void> {
    const path = `devices/pci0000:00/parent/${uuid}`;
    await this.#write(`${path}/mdev_type/name`, `${type}\n`);
    await this.#link(path, `bus/mdev/devices/${uuid}`);
    await this.#intoGroup(group, path, uuid);
  }

  /** Nodes of the device that nothing comes out of, in place of VFIO's and the group's. */
  async addNodes(...groups: string[]): Promise<void> {
    await mkdir(this.config.vfio, { recursive: true });
    for (const name of ['vfio', ...groups])
      await promisify(execFile)('mknod', [join(this.config.vfio, name), 'c', '1', '3']);
  }

  async #intoGroup(group: string, path: string, name: string): Promise<void> {
    await this.#link(`kernel/iommu_groups/${group}`, `${path}/iommu_group`);
    await this.#link(path, `kernel/iommu_groups/${group}/devices/${name}`);
  }

  async #write(name: string, text: string): Promise<void> {
    const path = join(this.config.sysfs, name);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, text);
  }

  async #link(target: string, name: string): Promise<void> {
    const path = join(this.config.sysfs, name);
    await mkdir(dirname(path), { recursive: true });
    await symlink(join(this.config.sysfs, target), path);
  }
}

/** POST /v1/hosts, what it refuses in which order (api.md 1.5), and what it only warns of. */
import type { HostCapacityReport } from '@fuse/host-protocol';
import { describe, expect, it } from 'vitest';
import { checkRegistration, fillCapacity, fillGpus } from './registration.ts';

const good = { id: 'h', url: 'http://10.0.0.7:8090/prefix', backend: 'qemu' };
const report: HostCapacityReport = {
  cpus: 16,
  ram_mb: 32_768,
  storage_gb: 100,
  free_storage_gb: 90,
  vm_count: 200,
  arch: 'amd64',
  gpus: 0,
  gpu_kind: '',
  backend: 'qemu',
  accelerator: 'kvm',
  templates: [],
};

describe('a registration', () => {
  /** Each has everything wrong that the ones behind it have, too. */
  const wrong = [
    [{ id: '' }, 'id and url are required'],
    [{ url: 'ftp://x' }, 'url: must be http or https'],
    [{ backend: 'xen' }, 'backend: must be firecracker or qemu'],
    [{ backend: '', capacity: { gpus: 1 } }, 'capacity.gpus: needs backend qemu'],
    [{ capacity: { gpus: -1 } }, 'capacity.gpus: must not be negative'],
    [{ capacity: { arch: 'mips' } }, 'capacity.arch: must be amd64 or arm64'],
    [{ backend: 'firecracker', capacity: { mig_profiles: { big: 0 } } }, 'capacity.mig_profiles: needs backend qemu'],
    [{ labels: { '-x': 'y' }, capacity: { mig_profiles: { big: 0 } } }, 'labels.-x: must be 1 to 63'],
    [{ capacity: { mig_profiles: { big: 0 } } }, 'capacity.mig_profiles: "big" is not like 1g.10gb'],
    [{ capacity: { mig_profiles: { '8g.10gb': 1 } } }, 'capacity.mig_profiles: "8g.10gb" is not like 1g.10gb'],
    [{ capacity: { mig_profiles: { '1g.10gb': 0 } } }, 'capacity.mig_profiles.1g.10gb: must be over 0'],
    [{ capacity: { ram_mb: -1 } }, 'capacity.ram_mb: must not be negative'],
  ] as const;
  it.each(wrong)('is refused as %j', (change, message) => {
    expect(() => checkRegistration({ ...good, ...change })).toThrow(message);
  });

  it('is told of the first of its mistakes', () => {
    const all = { id: 'h', url: 'x', backend: 'xen', labels: { '-': '' }, capacity: { gpus: -1, arch: 'mips' } };
    expect(() => checkRegistration({ ...all, url: '' })).toThrow('id and url are required');
    expect(() => checkRegistration(all)).toThrow('url: is not a URL');
    expect(() => checkRegistration({ ...all, url: good.url })).toThrow('backend:');
    expect(() => checkRegistration({ ...all, url: good.url, backend: 'qemu' })).toThrow('capacity.gpus:');
    expect(() => checkRegistration({ ...all, url: good.url, backend: 'qemu', capacity: { arch: 'mips' } })).toThrow(
      'capacity.arch:',
    );
  });

  it('takes what is absent from the host, and keeps what it declares, with warnings', () => {
    const warnings: string[] = [];
    const capacity = { cpus: 32, ram_mb: 0, vm_count: 10, gpus: 2, gpu_kind: 'a100', mig_profiles: { '1g.10gb': 4 } };
    const request = checkRegistration({ ...good, capacity });
    expect(fillCapacity(request, report, warnings)).toEqual({
      capacity: { cpus: 32, ram_mb: 32_768, storage_gb: 100, vm_count: 10 },
      declared: ['cpus', 'vm_count'],
    });
    expect(fillGpus(request, report, warnings)).toEqual({
      capacity: { gpus: 2, gpu_kind: 'a100', mig_profiles: { '1g.10gb': 4 } },
      declared: ['gpus', 'gpu_kind'],
    });
    expect(warnings).toEqual([
      'declared cpus (32) exceeds probed host capacity (16)',
      'declared gpus (2) exceeds probed host capacity (0)',
      'declared gpu_kind (a100) differs from probed host gpu_kind ()',
    ]);
  });

  it('takes the GPUs that the host tells, and says where the declaration differs', () => {
    const gpu_devices = [{ pci_bus_id: '0000:65:00.0', model: 'NVIDIA A100' }];
    const mig_instances = [{ uuid: 'mig-1', profile: '1g.10gb' }];
    const telling = { ...report, gpus: 1, gpu_kind: 'NVIDIA A100', gpu_devices, mig_instances };
    const told = { gpus: 1, gpu_kind: 'NVIDIA A100', gpu_devices, mig_instances };
    const warnings: string[] = [];
    expect(fillGpus(checkRegistration(good), telling, warnings)).toEqual({ capacity: told, declared: [] });
    expect(warnings).toEqual([]);
    const request = checkRegistration({ ...good, capacity: { gpu_kind: 'h100', mig_profiles: { '1G.10GB': 2 } } });
    expect(fillGpus(request, telling, warnings)).toEqual({
      capacity: { ...told, gpu_kind: 'h100', mig_profiles: { '1g.10gb': 2 } },
      declared: ['gpu_kind'],
    });
    expect(warnings).toEqual(['declared gpu_kind (h100) differs from probed host gpu_kind (NVIDIA A100)']);
    expect(fillGpus(request, undefined, [])).toEqual({
      capacity: { gpu_kind: 'h100', mig_profiles: { '1g.10gb': 2 } },
      declared: ['gpu_kind'],
    });
  });

  it('has room for something', () => {
    const request = checkRegistration({ ...good, capacity: { cpus: 1 } });
    expect(() => fillCapacity(request, { ...report, ram_mb: 0 }, [])).toThrow('capacity.ram_mb: must be over 0');
    expect(() => fillCapacity(request, undefined, [])).toThrow('capacity.ram_mb: must be over 0');
  });
});

/** What runs VMs here, found by booting one, and what that means for code that is not trusted. */
import { type Check, type Finding, ok, warn } from '../finding.ts';

export const kvmBootCheck: Check = {
  name: 'boot under KVM',
  run: async ({ vmm }) => judgeKvmBoot(await vmm()),
};

export const isolationCheck: Check = {
  name: 'isolation',
  run: async ({ vmm }) => judgeIsolation((await vmm()).accelerator),
};

export function judgeKvmBoot({
  name,
  accelerator,
}: {
  name: 'qemu' | 'firecracker';
  accelerator: 'kvm' | 'tcg';
}): Finding {
  return accelerator === 'kvm'
    ? ok(`a probe VM boots; VMs run in ${name === 'qemu' ? 'QEMU' : 'Firecracker'}`)
    : warn(
        'no VM boots under KVM here: VMs are emulated in software (TCG), some ten times slower',
        'use a machine with usable KVM: bare metal, or a cloud machine with nested virtualisation',
      );
}

export function judgeIsolation(accelerator: 'kvm' | 'tcg'): Finding {
  return accelerator === 'kvm'
    ? ok('VMs are separated by the CPU (KVM)')
    : warn(
        'software emulation (TCG) is not a security boundary: good for development, not for hostile code',
        'run code that you do not trust on a host where VMs boot under KVM',
      );
}

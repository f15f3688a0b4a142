/** What runs VMs here, found by booting one, and what that means for code that is not trusted. */
import { type Check, type Finding, ok, warn } from '../finding.ts';

export const kvmBootCheck: Check = {
  name: 'boot under KVM',
  run: async ({ accelerator }) => judgeKvmBoot(await accelerator()),
};

export const isolationCheck: Check = {
  name: 'isolation',
  run: async ({ accelerator }) => judgeIsolation(await accelerator()),
};

export function judgeKvmBoot(accelerator: 'kvm' | 'tcg'): Finding {
  return accelerator === 'kvm'
    ? ok('a probe VM boots')
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

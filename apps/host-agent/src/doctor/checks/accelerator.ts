/** What runs VMs here, found by booting one, and what that means for code that is not trusted. */
import { AppError } from '@fuse/contract';
import { type Check, type CheckContext, type Finding, fail, ok, warn } from '../finding.ts';

export const kvmBootCheck: Check = {
  name: 'boot under KVM',
  run: (context) => judged(context, judgeKvmBoot),
};

export const isolationCheck: Check = {
  name: 'isolation',
  run: (context) => judged(context, ({ accelerator }) => judgeIsolation(accelerator)),
};

/** Why Firecracker alone, which was asked for, does not run is told by its own check. */
async function judged(
  { vmm, env }: CheckContext,
  judge: (found: Awaited<ReturnType<CheckContext['vmm']>>) => Finding,
): Promise<Finding> {
  try {
    return judge(await vmm());
  } catch (error) {
    if (!(error instanceof AppError) || env.FUSE_VMM !== 'firecracker') throw error;
    return fail('not known: no VM can be tried, see "Firecracker"');
  }
}

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

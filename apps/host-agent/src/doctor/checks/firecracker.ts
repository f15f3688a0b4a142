/** Firecracker is what runs VMs in production: whether it is here, and whether it is one that is used. */
import { AppError } from '@fuse/contract';
import { findFirecracker } from '../../vmm/firecracker/programs.ts';
import { vmmConfigFromEnv } from '../../vmm/vmm-config.ts';
import { type Check, type Finding, fail, ok, warn } from '../finding.ts';

export const firecrackerCheck: Check = {
  name: 'Firecracker',
  async run({ env, vmm: usedVmm }) {
    const vmm = vmmConfigFromEnv(env);
    try {
      if (vmm.choice === 'firecracker') await usedVmm(); // knows more of what keeps it from running
      const { version } = await findFirecracker({ firecracker: vmm.firecrackerPath, jailer: vmm.jailerPath });
      return judgeFound(version, vmm.choice, (await usedVmm()).name);
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      return judgeMissing(error, vmm.choice);
    }
  },
};

export function judgeFound(version: string, choice: string, used: 'qemu' | 'firecracker'): Finding {
  if (choice === 'qemu' || used === 'firecracker') return ok(`${version}, with its jailer`);
  return warn(
    `${version} is here, but VMs run in QEMU: none boots in it, or VMMs are not confined`,
    'FUSE_VMM=firecracker makes the host agent say why; docs/firecracker.md says what it needs',
  );
}

export function judgeMissing(error: AppError, choice: string): Finding {
  if (choice === 'qemu') return ok('not looked for: FUSE_VMM is qemu');
  return choice === 'firecracker'
    ? fail(error.message, error.hint)
    : warn(`${error.message}; VMs run in QEMU`, error.hint);
}

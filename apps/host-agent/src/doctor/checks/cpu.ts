/** What the CPU and /dev/kvm say. Only a boot proves that KVM works: see accelerator.ts. */
import { access, constants, readFile } from 'node:fs/promises';
import { type Check, type Finding, ok, warn } from '../finding.ts';

export interface CpuFacts {
  cpuinfo: string;
  kvmDevice: 'usable' | 'forbidden' | 'missing';
}

export const cpuCheck: Check = {
  name: 'virtualisation',
  run: async () =>
    judgeCpu({ cpuinfo: await readFile('/proc/cpuinfo', 'utf8').catch(() => ''), kvmDevice: await kvmDevice() }),
};

export function judgeCpu({ cpuinfo, kvmDevice }: CpuFacts): Finding {
  const flag = /^flags\s*:.*\b(vmx|svm)\b/m.exec(cpuinfo)?.[1];
  const cpu = flag === undefined ? 'the CPU shows neither vmx nor svm' : `the CPU has ${flag}`;
  switch (kvmDevice) {
    case 'usable':
      return flag === undefined
        ? warn(`${cpu}, though /dev/kvm opens`, 'see "boot under KVM": a boot alone tells whether KVM works here')
        : ok(`${cpu}, /dev/kvm opens`);
    case 'forbidden':
      return warn(`${cpu}, but this user may not open /dev/kvm`, 'sudo usermod -aG kvm "$USER", then log in again');
    case 'missing':
      return warn(
        `${cpu}, and there is no /dev/kvm`,
        flag === undefined
          ? 'turn virtualisation on in the firmware, or nested virtualisation in the cloud machine; VMs run emulated until then'
          : 'sudo modprobe kvm_intel (or kvm_amd)',
      );
  }
}

async function kvmDevice(): Promise<CpuFacts['kvmDevice']> {
  try {
    await access('/dev/kvm', constants.R_OK | constants.W_OK);
    return 'usable';
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'missing' : 'forbidden'; // fs rejects with nothing else
  }
}

/** What lets VMs of different tenants learn from each other by way of the hardware, and where guest memory would go that it should not (Firecracker's guide to production hosts). */
import { type Check, type Finding, ok, warn } from '../finding.ts';
import { hostFile, hostFiles } from '../host-file.ts';

export const hyperThreadingCheck: Check = {
  name: 'hyper-threading',
  run: async ({ root }) => judgeHyperThreading(await hostFile(root, 'sys/devices/system/cpu/smt/active')),
};

export const samePageMergingCheck: Check = {
  name: 'page merging',
  run: async ({ root }) => judgeSamePageMerging(await hostFile(root, 'sys/kernel/mm/ksm/run')),
};

export const swapCheck: Check = {
  name: 'swap',
  run: async ({ root }) => judgeSwap((await hostFile(root, 'proc/swaps')) ?? ''),
};

export const mitigationsCheck: Check = {
  name: 'CPU mitigations',
  run: async ({ root }) =>
    judgeMitigations(
      await hostFiles(root, 'sys/devices/system/cpu/vulnerabilities'),
      await hostFile(root, 'proc/cpuinfo'),
    ),
};

export function judgeHyperThreading(active: string | undefined): Finding {
  if (active !== '1') return ok('off, or not there');
  return warn(
    'on: VMs that share a core can learn from each other by timing',
    'for code of different tenants: echo off > /sys/devices/system/cpu/smt/control, and `nosmt` on the kernel command line',
  );
}

export function judgeSamePageMerging(run: string | undefined): Finding {
  if (run !== '1') return ok('off');
  return warn(
    'on: a VM can find out by timing what is in the memory of another',
    'echo 2 > /sys/kernel/mm/ksm/run (2 also takes apart what is merged), and disable ksmtuned',
  );
}

export function judgeSwap(swaps: string): Finding {
  const devices = swaps
    .split('\n')
    .slice(1)
    .flatMap((line) => line.match(/^\S+/) ?? []);
  if (devices.length === 0) return ok('none');
  return warn(
    `guest memory can end up on ${devices.join(', ')}, and stay there`,
    'swapoff -a, and remove the entries of type swap from /etc/fstab; or encrypt swap with a key that is new at each boot',
  );
}

export function judgeMitigations(vulnerabilities: readonly [string, string][], cpuinfo: string | undefined): Finding {
  const microcode = /^microcode\s*:\s*(\S+)/m.exec(cpuinfo ?? '')?.[1];
  const has = microcode === undefined ? '' : `; microcode ${microcode}`;
  if (vulnerabilities.length === 0)
    return warn('the kernel does not say what the CPU is vulnerable to', 'use a newer kernel');
  const open = vulnerabilities
    .filter(([, state]) => /^vulnerable|smt vulnerable|no microcode/i.test(state))
    .map(([name]) => name);
  if (open.length === 0) return ok(`nothing known is open${has}`);
  return warn(
    `open: ${open.join(', ')}${has}`,
    'install current microcode (intel-microcode or amd64-microcode) and kernel, remove mitigations=off from the kernel command line, turn hyper-threading off; grep . /sys/devices/system/cpu/vulnerabilities/*',
  );
}

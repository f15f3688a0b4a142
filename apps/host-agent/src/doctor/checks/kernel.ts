import { type Check, type Finding, ok, warn } from '../finding.ts';
import { hostFile } from '../host-file.ts';
import { isAtLeast } from '../version.ts';

/** The oldest that Firecracker is tested on. */
const LEAST = '5.10';
/** Before it, a VM's clock is not advanced by what it stood still; the guest is told the time in any case. */
const CLOCK = '5.16';

export const kernelCheck: Check = {
  name: 'kernel',
  run: async ({ root }) => judgeKernel((await hostFile(root, 'proc/sys/kernel/osrelease')) ?? ''),
};

export function judgeKernel(release: string): Finding {
  const version = /^\d+\.\d+(\.\d+)?/.exec(release)?.[0];
  if (version === undefined) return warn('the kernel does not say its version');
  const fix = 'use a kernel of a distribution that is still supported: 6.1 (Debian 12) or newer';
  if (!isAtLeast(version, LEAST)) return warn(`${release} is older than ${LEAST}: not tested with Firecracker`, fix);
  if (!isAtLeast(version, CLOCK))
    return warn(`${release}: restored guests under Firecracker have their clocks set late`, fix);
  return ok(release);
}

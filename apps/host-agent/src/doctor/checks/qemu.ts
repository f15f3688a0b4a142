import { access } from 'node:fs/promises';
import { FIRMWARE_PATH, QEMU_PROGRAM } from '../../vmm/qemu/command-line.ts';
import { type Check, type Finding, fail, ok } from '../finding.ts';
import { programOutput } from '../program-output.ts';
import { isAtLeast } from '../version.ts';

const NEEDED = '7.2';
const FIX = 'apt-get install --no-install-recommends qemu-system-x86';

export const qemuCheck: Check = {
  name: 'QEMU',
  async run({ signal }) {
    const output = await programOutput([QEMU_PROGRAM, '--version'], signal);
    const firmware = await access(FIRMWARE_PATH).then(
      () => true,
      () => false,
    );
    return judgeQemu(output, firmware);
  },
};

export function judgeQemu(output: string | undefined, firmware: boolean): Finding {
  const version = /version (\d+(?:\.\d+)+)/.exec(output ?? '')?.[1];
  if (version === undefined) return fail(`${QEMU_PROGRAM} does not run`, FIX);
  if (!isAtLeast(version, NEEDED))
    return fail(`${version} is too old, ${NEEDED} is needed`, 'use Debian 12, Ubuntu 23.04 or newer');
  if (!firmware) return fail(`${version}, but ${FIRMWARE_PATH} is missing`, FIX);
  return ok(version);
}

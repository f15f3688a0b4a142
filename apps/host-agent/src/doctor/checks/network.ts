/** Whether VMs can have networks here: what the host agent looks for, and then one that is made, in a namespace without a name, which is gone with the program that makes it. */

import { NamespaceName } from '../../network/config.ts';
import { missingForNetwork } from '../../network/missing.ts';
import { PROGRAM_PATH, slotFiles } from '../../network/slot.ts';
import { type Check, type Finding, fail, ok, warn } from '../finding.ts';
import { programOutput } from '../program-output.ts';

const ANY_MAC = '02:fc:00:00:00:01';

export const networkCheck: Check = {
  name: 'networks of VMs',
  async run({ env, signal }) {
    const given = NamespaceName.optional().safeParse(env.FUSE_EGRESS_NETNS || undefined);
    if (!given.success) return fail('FUSE_EGRESS_NETNS must be the name of a network namespace');
    const missing = await missingForNetwork({ egressNamespace: given.data });
    return judgeNetwork({ missing, canMakeSlot: missing === undefined && (await canMakeSlot(signal)) });
  },
};

export function judgeNetwork({ missing, canMakeSlot }: { missing: string | undefined; canMakeSlot: boolean }): Finding {
  if (missing !== undefined) return warn(`missing: ${missing}; VMs can have no network card`, fixOf(missing));
  if (canMakeSlot) return ok('namespaces and rules of VMs can be made');
  return warn(
    'there can be no namespace with the rules of a VM; VMs can have no network card',
    'modprobe -a nf_tables nft_tproxy nft_reject_ipv4 nft_limit nft_nat nf_conntrack, or a kernel of a distribution',
  );
}

/** What is missing says it in words: its package, its module, or who has to run it. */
function fixOf(missing: string): string | undefined {
  const debianPackage = /\(package (\S+)\)/.exec(missing)?.[1];
  if (debianPackage !== undefined) return `apt-get install --no-install-recommends ${debianPackage}`;
  const kernelModule = /\(kernel module (\S+)\)/.exec(missing)?.[1];
  if (kernelModule !== undefined) return `modprobe ${kernelModule}`;
  return missing.startsWith('root') ? 'run the host agent (and this) as root' : undefined;
}

/** As the host agent makes a slot, but for its name and its listeners. */
const MAKE_SLOT = 'sysctl -q -p "$1" && ip -batch "$2" && nft -D "guest_mac=$4" -f "$3"';

async function canMakeSlot(signal: AbortSignal): Promise<boolean> {
  const { settings, links, rules } = slotFiles;
  const shell = ['sh', '-c', MAKE_SLOT, 'sh', settings, links, rules, ANY_MAC];
  const argv = ['/usr/bin/env', `PATH=${PROGRAM_PATH}`, 'unshare', '--net', '--', ...shell] as const;
  return (await programOutput(argv, signal)) !== undefined;
}

/** What this host lacks for VMs with a network. */
import { access, constants } from 'node:fs/promises';
import { namespacePathOf, PROGRAM_PATH } from './slot.ts';

const PROGRAMS = {
  ip: 'iproute2',
  nft: 'nftables',
  sysctl: 'procps',
  nsenter: 'util-linux',
} as const;
const TUN_DEVICE = '/dev/net/tun';

/** In words; undefined when nothing is missing. */
export async function missingForNetwork({
  egressNamespace,
}: {
  egressNamespace: string | undefined;
}): Promise<string | undefined> {
  if (process.geteuid?.() !== 0) return 'root, as whom the host agent has to run';
  for (const [program, debianPackage] of Object.entries(PROGRAMS))
    if (!(await isInPath(program))) return `the program ${program} (package ${debianPackage})`;
  if (!(await isThere(TUN_DEVICE))) return `the device ${TUN_DEVICE} (kernel module tun)`;
  if (egressNamespace !== undefined && !(await isThere(namespacePathOf(egressNamespace))))
    return `the network namespace ${egressNamespace}, which FUSE_EGRESS_NETNS names`;
  return undefined;
}

async function isInPath(program: string): Promise<boolean> {
  const found = await Promise.all(PROGRAM_PATH.split(':').map((directory) => isThere(`${directory}/${program}`)));
  return found.includes(true);
}

const isThere = (path: string): Promise<boolean> =>
  access(path, constants.F_OK).then(
    () => true,
    () => false,
  );

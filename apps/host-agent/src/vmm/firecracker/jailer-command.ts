/** The jailer's command line. Control groups are entered apart from it (start.ts): a host may have them of both versions, which the jailer takes for one. */

import { type Chroot, inside } from './chroot.ts';
import type { FirecrackerPrograms } from './programs.ts';

const PRLIMIT_PROGRAM = '/usr/bin/prlimit';
const UNSHARE_PROGRAM = '/usr/bin/unshare';

export interface JailerOrder {
  programs: FirecrackerPrograms;
  chroot: Chroot;
  uid: number;
  networkNamespacePath: string | undefined;
  openFiles: number;
  fileSizeBytes: number;
}

/**
 * The jailer makes namespaces for mounts and processes and enters one for the network, if it is told which. A VM without a card has an empty one: unshare(1) makes it,
 * and those for IPC and host name, and becomes the jailer. prlimit(1) before it sees to it that no memory is ever dumped.
 */
export function jailerCommand(order: JailerOrder): { program: string; args: string[] } {
  const { programs, chroot, uid, networkNamespacePath, openFiles, fileSizeBytes } = order;
  const network = networkNamespacePath === undefined ? ['--net'] : [];
  return {
    program: PRLIMIT_PROGRAM,
    args: [
      ...['--core=0', UNSHARE_PROGRAM],
      ...['--ipc', '--uts', ...network, '--', programs.jailer],
      ...['--id', chroot.id],
      ...['--exec-file', programs.firecracker],
      ...['--uid', String(uid)],
      ...['--gid', String(uid)],
      ...['--chroot-base-dir', chroot.basePath],
      ...(networkNamespacePath === undefined ? [] : ['--netns', networkNamespacePath]),
      '--new-pid-ns',
      ...['--resource-limit', `no-file=${openFiles}`],
      ...['--resource-limit', `fsize=${fileSizeBytes}`],
      '--',
      ...['--api-sock', inside.apiSocket],
      ...['--level', 'Warning'],
    ],
  };
}

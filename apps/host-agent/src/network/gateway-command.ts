/** How the gateway is started: in its namespace, to become a user of its own once it has its sockets. */
import { namespacePathOf } from './slot.ts';

const NSENTER = '/usr/bin/nsenter';

export function gatewayCommand(
  gateway: string,
  { egressNamespace, uid }: { egressNamespace: string | undefined; uid: number },
): { program: string; args: string[] } {
  const args = ['--directory', '.', '--uid', String(uid), '--gid', String(uid)];
  if (egressNamespace === undefined) return { program: gateway, args };
  return { program: NSENTER, args: [`--net=${namespacePathOf(egressNamespace)}`, '--', gateway, ...args] };
}

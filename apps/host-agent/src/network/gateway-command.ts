/** How the gateway is started: in its namespace, as a user of its own that may do nothing but connect. */
import { namespacePathOf } from './slot.ts';

const NSENTER = '/usr/bin/nsenter';
const SETPRIV = '/usr/bin/setpriv';

interface GatewayCommand {
  program: string;
  args: string[];
}

export function gatewayCommand(
  gateway: string,
  { egressNamespace, uid }: { egressNamespace: string | undefined; uid: number },
): GatewayCommand {
  const unprivileged = [
    SETPRIV,
    ...[
      `--reuid=${uid}`,
      `--regid=${uid}`,
      '--clear-groups',
      '--no-new-privs',
      '--bounding-set=-all',
      '--inh-caps=-all',
    ],
    ...['--', gateway, '--directory', '.'],
  ];
  const command =
    egressNamespace === undefined
      ? unprivileged
      : [NSENTER, `--net=${namespacePathOf(egressNamespace)}`, '--', ...unprivileged];
  const [program = SETPRIV, ...args] = command;
  return { program, args };
}

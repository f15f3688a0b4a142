/** `fuse port-forward`: ports of this machine that end in an environment, which needs no network for it. */
import { type ForwardedPort, forwardPort } from '@fuse/sdk/node';
import { type Command, InvalidArgumentError } from 'commander';
import { addGlobalOptions, type Cli, clientOf } from '../cli.ts';
import { CliError } from '../cli-error.ts';
import { interruptSignal } from '../interrupt.ts';
import { reasonOf } from '../output/error-text.ts';
import { printable } from '../output/format.ts';

interface Forward {
  localPort: number;
  remotePort: number;
}

const AFTER_HELP = `
Runs until Ctrl-C. The server in the environment may listen on its loopback only.
Examples:
  fuse port-forward fuse-demo 8080            127.0.0.1:8080 here is port 8080 there
  fuse port-forward fuse-demo 8080:80 5432    several at once
  fuse port-forward fuse-demo 0:3000          any free port here; it is printed
`;

export function addPortForwardCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('port-forward')
    .summary('reach a port of an environment')
    .description('Reach TCP servers in an environment through ports of this machine.')
    .argument('<id>')
    .argument('<[local:]port...>', 'ports to forward', gatherForward)
    .option('--address <address>', 'where to listen here', '127.0.0.1')
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, forwards: Forward[], { address }: { address: string }) => {
      const client = await clientOf(cli, command);
      const { state } = await client.environments.get(id);
      if (state !== 'running') cli.io.say(`${id} is ${state}: connections will fail until it runs`);
      const stop = interruptSignal();
      const open: ForwardedPort[] = [];
      try {
        for (const { localPort, remotePort } of forwards) {
          const onError = (error: unknown) => cli.io.say(printable(`${remotePort}: ${reasonOf(error)}`));
          const forwarded = await forwardPort(client, id, { localPort, remotePort, host: address, onError }).catch(
            (cause: unknown) => {
              throw new CliError(`cannot listen on ${address}:${localPort}: ${reasonOf(cause)}`, {
                ...(isTaken(cause) ? { hint: `any free port: fuse port-forward ${id} 0:${remotePort}` } : {}),
                cause,
              });
            },
          );
          open.push(forwarded);
          await cli.io.out(`${forwarded.host}:${forwarded.localPort} -> ${id}:${remotePort}\n`);
        }
        await new Promise((_, reject) => stop.addEventListener('abort', () => reject(stop.reason), { once: true }));
      } finally {
        await Promise.all(open.map((each) => each.close()));
      }
    });
  addGlobalOptions(command);
}

const isTaken = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && (error.code === 'EADDRINUSE' || error.code === 'EACCES');

/** `8080`, `8080:80` as this machine's and the environment's. */
function gatherForward(text: string, soFar: readonly Forward[] = []): readonly Forward[] {
  const [, local, remote] = /^(?:(\d{1,5}):)?(\d{1,5})$/.exec(text) ?? [];
  const remotePort = Number(remote);
  const localPort = Number(local ?? remote);
  if (remote === undefined || remotePort < 1 || remotePort > 65_535 || localPort > 65_535)
    throw new InvalidArgumentError('Write PORT or LOCAL:PORT, from 1 to 65535; a local 0 is any free one.');
  return [...soFar, { localPort, remotePort }];
}

import { type SignalName, signalNames } from '@fuse/contract';
import type { Command } from 'commander';
import { InvalidArgumentError } from 'commander';
import { addGlobalOptions, type Cli, clientOf } from '../../cli.ts';

const AFTER_HELP = `
Examples:
  fuse environment signal fuse-demo dev-server HUP      a command by its id: its process group
  fuse environment signal fuse-demo 231 TERM --tree     a process by its number, with its descendants
`;

export function addEnvironmentSignalCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('signal')
    .description('Send a signal to a command, or to a process.')
    .argument('<id>')
    .argument('<exec or pid>', 'see `fuse environment execs` and `fuse environment ps`')
    .argument('[signal]', 'INT, TERM, KILL … (default TERM)', parseSignal)
    .option('--tree', 'to everything that it started too')
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, target: string, name: SignalName = 'SIGTERM', { tree = false }: { tree?: boolean }) => {
      const { environments } = await clientOf(cli, command);
      if (/^\d+$/.test(target)) await environments.processes.signal(id, Number(target), name, { tree });
      else await environments.execs.signal(id, target, name, { tree });
    });
  addGlobalOptions(command);
}

function parseSignal(text: string): SignalName {
  const name = `SIG${text.toUpperCase().replace(/^SIG/, '')}`;
  const known = signalNames.find((each) => each === name);
  if (known === undefined)
    throw new InvalidArgumentError(`Known are ${signalNames.map((each) => each.slice(3)).join(', ')}.`);
  return known;
}

import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf } from '../../cli.ts';
import { confirm } from '../../confirm.ts';

export function addHostRemoveCommand(group: Command, cli: Cli): void {
  const command = group
    .command('remove')
    .aliases(['rm', 'deregister'])
    .description('Forget a host that has no environments any more.')
    .argument('<id>')
    .option('-y, --yes', 'without asking')
    .addHelpText(
      'after',
      '\nExample:\n  fuse hosts remove h1 --yes      after `fuse hosts drain h1`, once it is empty\n',
    )
    .action(async (id: string, { yes = false }: { yes?: boolean }) => {
      const client = await clientOf(cli, command);
      await confirm(`Remove host ${id}?`, yes);
      await client.hosts.deregister(id);
      cli.io.say(`${id} removed`);
    });
  addGlobalOptions(command);
}

import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf } from '../../cli.ts';
import { confirm } from '../../confirm.ts';

export function addEnvironmentDestroyCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('destroy')
    .aliases(['rm', 'delete'])
    .description('Destroy an environment: its VM and all that is on its disk.')
    .argument('<id>')
    .option('-y, --yes', 'without asking')
    .action(async (id: string, { yes = false }: { yes?: boolean }) => {
      const client = await clientOf(cli, command);
      await confirm(`Destroy ${id}?`, yes);
      await client.environments.destroy(id);
      cli.io.say(`${id} destroyed`);
    });
  addGlobalOptions(command);
}

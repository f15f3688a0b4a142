import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf } from '../../cli.ts';
import { confirm } from '../../confirm.ts';

export function addTenantDeleteCommand(group: Command, cli: Cli): void {
  const command = group
    .command('delete')
    .alias('rm')
    .description('Delete a tenant that has nothing any more; its keys go with it.')
    .argument('<id>')
    .option('-y, --yes', 'without asking')
    .addHelpText('after', '\nExample:\n  fuse tenants delete acme --yes\n')
    .action(async (id: string, { yes = false }: { yes?: boolean }) => {
      const client = await clientOf(cli, command);
      await confirm(`Delete tenant ${id}?`, yes);
      await client.tenants.delete(id);
      cli.io.say(`${id} deleted`);
    });
  addGlobalOptions(command);
}

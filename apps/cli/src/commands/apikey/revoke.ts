import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf } from '../../cli.ts';
import { confirm } from '../../confirm.ts';

export function addApiKeyRevokeCommand(group: Command, cli: Cli): void {
  const command = group
    .command('revoke')
    .alias('rm')
    .description('Revoke an API key: it is refused within a second, and what is open with it is cut.')
    .argument('<id>', 'such as ak_0123456789abcdef')
    .option('-y, --yes', 'without asking')
    .addHelpText('after', '\nExample:\n  fuse apikeys revoke ak_0123456789abcdef --yes\n')
    .action(async (id: string, { yes = false }: { yes?: boolean }) => {
      const client = await clientOf(cli, command);
      await confirm(`Revoke ${id}?`, yes);
      await client.apiKeys.revoke(id);
      cli.io.say(`${id} revoked`);
    });
  addGlobalOptions(command);
}

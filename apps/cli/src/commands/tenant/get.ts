import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { json } from '../../output/format.ts';
import { tenantText } from '../../output/tenant-text.ts';

export function addTenantGetCommand(group: Command, cli: Cli): void {
  const command = group
    .command('get')
    .description('Show one tenant. (What it uses: fuse quotas --tenant ID)')
    .argument('<id>')
    .addHelpText('after', '\nExample:\n  fuse tenants get acme\n')
    .action(async (id: string) => {
      const client = await clientOf(cli, command);
      const tenant = await client.tenants.get(id);
      await cli.io.out(wantsJson(command) ? json(tenant) : tenantText(tenant));
    });
  addGlobalOptions(command);
}

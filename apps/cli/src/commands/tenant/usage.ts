import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { json, table } from '../../output/format.ts';
import { usageHeadings, usageRow } from '../../output/tenant-text.ts';

export function addTenantUsageCommand(group: Command, cli: Cli): void {
  const command = group
    .command('usage')
    .description('Show what every tenant has now, beside its quotas, and how much of it waits for room.')
    .addHelpText('after', '\nExample:\n  fuse tenants usage -o json | jq ".tenants[] | {id, used: .usage.used}"\n')
    .action(async () => {
      const client = await clientOf(cli, command);
      const tenants = await client.tenants.list({ include: 'usage' });
      await cli.io.out(wantsJson(command) ? json({ tenants }) : table(usageHeadings, tenants.map(usageRow)));
    });
  addGlobalOptions(command);
}

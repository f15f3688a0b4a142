import type { Command } from 'commander';
import { addPageOptions, type PageFlags, pageOf } from '../../args/pages.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { json, table } from '../../output/format.ts';
import { tenantHeadings, tenantRow } from '../../output/tenant-text.ts';

export function addTenantListCommand(group: Command, cli: Cli): void {
  const command = addPageOptions(group.command('list').alias('ls').description('List tenants.'))
    .addHelpText('after', '\nExample:\n  fuse tenants list --all-pages -o json | jq -r ".tenants[].id"\n')
    .action((flags: PageFlags) => listTenants(cli, command, flags));
  addGlobalOptions(command);
}

export async function listTenants(cli: Cli, command: Command, flags: PageFlags): Promise<void> {
  const client = await clientOf(cli, command);
  const { tenants, nextCursor } =
    flags.allPages === true
      ? { tenants: await client.tenants.list(), nextCursor: undefined }
      : await client.tenants.listPage(pageOf(flags));
  if (wantsJson(command)) {
    await cli.io.out(json({ tenants, next_cursor: nextCursor }));
    return;
  }
  if (tenants.length === 0) cli.io.say('no tenants');
  else await cli.io.out(table(tenantHeadings, tenants.map(tenantRow)));
  if (nextCursor !== undefined) cli.io.say(`there are more: --cursor ${nextCursor}, or --all-pages`);
}

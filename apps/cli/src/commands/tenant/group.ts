import type { Command } from 'commander';
import { addPageOptions, type PageFlags } from '../../args/pages.ts';
import { addGlobalOptions, type Cli } from '../../cli.ts';
import { addTenantCreateCommand } from './create.ts';
import { addTenantDeleteCommand } from './delete.ts';
import { addTenantDisableCommands } from './disable.ts';
import { addTenantGetCommand } from './get.ts';
import { addTenantListCommand, listTenants } from './list.ts';
import { addTenantUpdateCommand } from './update.ts';
import { addTenantUsageCommand } from './usage.ts';

const AFTER_HELP = `
A tenant is a customer: it owns API keys, environments, runs, snapshots and quotas, and sees nothing of others. All of this asks for the master token.

Examples:
  fuse tenants
  fuse tenants create acme --label "Acme Inc." --quota environments=20 --quota cpus=40
  fuse apikeys create --tenant acme --scope runs --scope files
  fuse environment list --tenant acme
`;

export function addTenantCommands(parent: Command, cli: Cli): void {
  const group = parent
    .command('tenants')
    .aliases(['tenant'])
    .description('The customers of an installation.')
    .addHelpText('after', AFTER_HELP);
  addPageOptions(group).action((flags: PageFlags) => listTenants(cli, group, flags));
  addGlobalOptions(group);
  addTenantListCommand(group, cli);
  addTenantCreateCommand(group, cli);
  addTenantGetCommand(group, cli);
  addTenantUsageCommand(group, cli);
  addTenantUpdateCommand(group, cli);
  addTenantDisableCommands(group, cli);
  addTenantDeleteCommand(group, cli);
}

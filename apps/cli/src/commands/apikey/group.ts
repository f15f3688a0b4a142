import type { Command } from 'commander';
import { addGlobalOptions, type Cli } from '../../cli.ts';
import { addApiKeyCreateCommand } from './create.ts';
import { addApiKeyListCommand, listApiKeys } from './list.ts';
import { addApiKeyRevokeCommand } from './revoke.ts';

const AFTER_HELP = `
A key belongs to a tenant. With scopes it may do what they say and nothing else; without any it may do everything but run commands, open terminals and administer.
With the master token, lists and revocations are of every tenant, or of --tenant; a key is made in that of --tenant.

Examples:
  fuse apikeys
  fuse apikeys create --label ci --scope runs --scope files --expires 90d
  fuse apikeys revoke ak_0123456789abcdef --yes
`;

export function addApiKeyCommands(parent: Command, cli: Cli): void {
  const group = parent
    .command('apikeys')
    .aliases(['apikey', 'keys'])
    .description('What clients hold in place of the master token.')
    .addHelpText('after', AFTER_HELP)
    .action(() => listApiKeys(cli, group));
  addGlobalOptions(group);
  addApiKeyCreateCommand(group, cli);
  addApiKeyListCommand(group, cli);
  addApiKeyRevokeCommand(group, cli);
}

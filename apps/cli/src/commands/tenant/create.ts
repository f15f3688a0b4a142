import type { Command } from 'commander';
import { type GivenQuotas, gatherQuota } from '../../args/quota.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { json } from '../../output/format.ts';
import { tenantText } from '../../output/tenant-text.ts';

const AFTER_HELP = `
Examples:
  fuse tenants create acme
  fuse tenants create acme --label "Acme Inc." --quota environments=20 --quota ram_mb=40960 --quota snapshot_bytes=200G
`;

export function addTenantCreateCommand(group: Command, cli: Cli): void {
  const command = group
    .command('create')
    .description('Make a tenant.')
    .argument('<id>', '1 to 63 lower-case letters, digits or "-"')
    .option('--label <text>', 'who it is, for people')
    .option('--quota <name=value>', 'a limit; may be repeated (see `fuse quotas --help`)', gatherQuota)
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, { label, quota }: { label?: string; quota?: GivenQuotas }) => {
      const client = await clientOf(cli, command);
      const quotas = Object.fromEntries(Object.entries(quota ?? {}).filter(([, limit]) => limit !== null));
      const tenant = await client.tenants.create({ id, label, quotas });
      await cli.io.out(wantsJson(command) ? json(tenant) : tenantText(tenant));
    });
  addGlobalOptions(command);
}

import type { Command } from 'commander';
import { type GivenQuotas, gatherQuota } from '../../args/quota.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { policyOf } from '../../files/policy-file.ts';
import { json } from '../../output/format.ts';
import { tenantText } from '../../output/tenant-text.ts';

interface Flags {
  label?: string;
  quota?: GivenQuotas;
  networkMax?: string;
  networkDefault?: string;
}

const AFTER_HELP = `
Examples:
  fuse tenants create acme
  fuse tenants create acme --label "Acme Inc." --quota environments=20 --quota ram_mb=40960 --quota snapshot_bytes=200G
  fuse tenants create acme --network-max '{"egress":"allowlist","allow":["pypi.org","*.npmjs.org"]}'
`;

export function addTenantCreateCommand(group: Command, cli: Cli): void {
  const command = group
    .command('create')
    .description('Make a tenant.')
    .argument('<id>', '1 to 63 lower-case letters, digits or "-"')
    .option('--label <text>', 'who it is, for people')
    .option('--quota <name=value>', 'a limit; may be repeated (see `fuse quotas --help`)', gatherQuota)
    .option('--network-max <policy>', 'what its guests may reach at most: a level, JSON, or @FILE')
    .option('--network-default <policy>', 'what those may reach that do not say')
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, { label, quota, networkMax, networkDefault }: Flags) => {
      const client = await clientOf(cli, command);
      const quotas = Object.fromEntries(Object.entries(quota ?? {}).filter(([, limit]) => limit !== null));
      const tenant = await client.tenants.create({
        id,
        label,
        quotas,
        network_max: await policyOf(networkMax),
        network_default: await policyOf(networkDefault),
      });
      await cli.io.out(wantsJson(command) ? json(tenant) : tenantText(tenant));
    });
  addGlobalOptions(command);
}

import { type Command, Option } from 'commander';
import { type GivenQuotas, gatherQuota } from '../../args/quota.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { usageError } from '../../cli-error.ts';
import { json } from '../../output/format.ts';
import { tenantText } from '../../output/tenant-text.ts';

interface Flags {
  label?: string;
  quota?: GivenQuotas;
  disable?: true;
  enable?: true;
}

const AFTER_HELP = `
A disabled tenant's keys are refused and nothing new starts; what runs goes on.

Examples:
  fuse tenants update acme --quota cpus=80 --quota creates_per_minute=none
  fuse tenants update acme --disable
`;

export function addTenantUpdateCommand(group: Command, cli: Cli): void {
  const command = group
    .command('update')
    .description('Change a tenant; what is not named stays.')
    .argument('<id>')
    .option('--label <text>', 'who it is, for people; "" for none')
    .option('--quota <name=value>', 'a limit, or none; may be repeated', gatherQuota)
    .addOption(new Option('--disable', 'refuse its keys, start nothing new').conflicts('enable'))
    .option('--enable', 'undo that')
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, { label, quota, disable, enable }: Flags) => {
      const request = {
        ...(label === undefined ? {} : { label: label === '' ? null : label }),
        ...(quota === undefined ? {} : { quotas: quota }),
        ...(disable === true || enable === true ? { disabled: disable === true } : {}),
      };
      if (Object.keys(request).length === 0)
        throw usageError('nothing to change', { hint: 'name --label, --quota, --disable or --enable' });
      const client = await clientOf(cli, command);
      const tenant = await client.tenants.update(id, request);
      await cli.io.out(wantsJson(command) ? json(tenant) : tenantText(tenant));
    });
  addGlobalOptions(command);
}

import { type Command, Option } from 'commander';
import { type GivenQuotas, gatherQuota } from '../../args/quota.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { usageError } from '../../cli-error.ts';
import { policyOf } from '../../files/policy-file.ts';
import { json } from '../../output/format.ts';
import { tenantText } from '../../output/tenant-text.ts';

interface Flags {
  label?: string;
  quota?: GivenQuotas;
  disable?: true;
  enable?: true;
  networkMax?: string | false;
  networkDefault?: string | false;
}

const AFTER_HELP = `
A disabled tenant's keys are refused and nothing new starts; what runs goes on.

Examples:
  fuse tenants update acme --quota cpus=80 --quota creates_per_minute=none
  fuse tenants update acme --network-max internet --network-default none
  fuse tenants update acme --no-network-max
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
    .option(
      '--network-max <policy>',
      'what its guests may reach at most: a level, JSON, or @FILE; holds for what runs too',
    )
    .option('--no-network-max', 'no maximum any more')
    .option('--network-default <policy>', 'what those may reach that do not say')
    .option('--no-network-default', 'as the deployment has it')
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, { label, quota, disable, enable, networkMax, networkDefault }: Flags) => {
      const request = {
        ...(label === undefined ? {} : { label: label === '' ? null : label }),
        ...(quota === undefined ? {} : { quotas: quota }),
        ...(disable === true || enable === true ? { disabled: disable === true } : {}),
        ...(networkMax === undefined ? {} : { network_max: await changedPolicy(networkMax) }),
        ...(networkDefault === undefined ? {} : { network_default: await changedPolicy(networkDefault) }),
      };
      if (Object.keys(request).length === 0)
        throw usageError('nothing to change', {
          hint: 'name --label, --quota, --network-max, --network-default, --disable or --enable',
        });
      const client = await clientOf(cli, command);
      const tenant = await client.tenants.update(id, request);
      await cli.io.out(wantsJson(command) ? json(tenant) : tenantText(tenant));
    });
  addGlobalOptions(command);
}

const changedPolicy = async (given: string | false) => (given === false ? null : await policyOf(given));

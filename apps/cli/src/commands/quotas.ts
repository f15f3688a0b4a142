import { quotaNames } from '@fuse/contract';
import type { Command } from 'commander';
import { type GivenQuotas, gatherQuota } from '../args/quota.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../cli.ts';
import { json, table } from '../output/format.ts';
import { tenantText } from '../output/tenant-text.ts';
import { amountText } from '../output/usage-text.ts';

const AFTER_HELP = `
  environments        that are not gone, of runs too; paused ones count
  cpus, ram_mb        of those that are not paused
  storage_gb          of all of them
  creates_per_minute  environments made in any 60 seconds, forks and runs too
  max_run_seconds     the longest --max-runtime, and the longest timeout of a run
  snapshot_bytes      what snapshots take up
  output_bytes        what outputs of runs and uploads take up

What would be over a limit is refused before anything starts ("quota exceeded: …").

Examples:
  fuse quotas                                            of the tenant that commands act in
  fuse quotas set acme environments=50 snapshot_bytes=200G creates_per_minute=none
`;

export function addQuotaCommands(parent: Command, cli: Cli): void {
  const group = parent
    .command('quotas')
    .alias('quota')
    .description('Show what a tenant may have, and has.')
    .addHelpText('after', AFTER_HELP)
    .action(async () => {
      const client = await clientOf(cli, group);
      const { tenant_id, quotas, used } = await client.usage.now();
      if (wantsJson(group)) {
        await cli.io.out(json({ tenant_id, quotas, used }));
        return;
      }
      const rows = quotaNames.map((name) => {
        const limit = quotas[name];
        return [
          name,
          name === 'max_run_seconds' ? '' : amountText(name, used[name]),
          limit === undefined ? 'none' : amountText(name, limit),
        ];
      });
      await cli.io.out(table([`TENANT ${tenant_id}`, 'USED', 'LIMIT'], rows));
    });
  addGlobalOptions(group);

  const set = group
    .command('set')
    .description('Change the limits of a tenant, with the master token; those that are not named stay.')
    .argument('<tenant>')
    .argument('<name=value...>', 'a limit, or none')
    .addHelpText('after', '\nExample:\n  fuse quotas set acme environments=50 cpus=100 creates_per_minute=none\n')
    .action(async (tenant: string, pairs: string[]) => {
      const quotas = pairs.reduce<GivenQuotas>((soFar, pair) => gatherQuota(pair, soFar), {});
      const client = await clientOf(cli, set);
      const updated = await client.tenants.update(tenant, { quotas });
      await cli.io.out(wantsJson(set) ? json(updated) : tenantText(updated));
    });
  addGlobalOptions(set);
}

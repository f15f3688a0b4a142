import type { Command } from 'commander';
import { parseTime } from '../args/time.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../cli.ts';
import { json, properties } from '../output/format.ts';
import { amountText, usageHistoryText } from '../output/usage-text.ts';

const AFTER_HELP = `
Examples:
  fuse usage                                    what the tenant has now
  fuse usage --from 24h                         what it used, by the hour
  fuse usage --tenant acme --from 2026-01-01 --to 2026-02-01 -o json | jq .total
`;

export function addUsageCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('usage')
    .description('Show what a tenant has now or, with --from, what it used by the hour.')
    .option(
      '--from <time>',
      'from this hour on: 2026-01-31T12:00:00Z, 2026-01-31, or 24h for a day ago',
      parseTime(Date.now),
    )
    .option('--to <time>', 'up to then (default: now)', parseTime(Date.now))
    .addHelpText('after', AFTER_HELP)
    .action(async ({ from, to }: { from?: Date; to?: Date }) => {
      const { usage } = await clientOf(cli, command);
      if (from !== undefined || to !== undefined) {
        const history = await usage.history({ from, to });
        await cli.io.out(wantsJson(command) ? json(history) : usageHistoryText(history));
        return;
      }
      const now = await usage.now();
      const used = Object.entries(now.used).map(([name, amount]) => [name, amountText(name, amount)]);
      await cli.io.out(
        wantsJson(command) ? json(now) : properties({ tenant: now.tenant_id, ...Object.fromEntries(used) }),
      );
    });
  addGlobalOptions(command);
}

import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../cli.ts';
import { json, table } from '../output/format.ts';
import { queueHeadings, queueRow, waitingOf } from '../output/tenant-text.ts';

export function addQueueCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('queue')
    .description('Show which tenants wait for room, with the master token; what waits itself is in their lists.')
    .addHelpText(
      'after',
      '\nExamples:\n  fuse queue\n  fuse environment list --tenant acme --state provisioning\n  fuse runs list --tenant acme --state queued\n',
    )
    .action(async () => {
      const client = await clientOf(cli, command);
      const waiting = (await client.tenants.list({ include: 'usage' })).filter((tenant) => waitingOf(tenant) > 0);
      if (wantsJson(command)) {
        const rows = waiting.map(({ id, usage }) => ({ tenant_id: id, ...usage?.waiting }));
        await cli.io.out(json({ waiting: rows }));
        return;
      }
      if (waiting.length === 0) cli.io.say('nothing waits');
      else await cli.io.out(table(queueHeadings, waiting.map(queueRow)));
    });
  addGlobalOptions(command);
}

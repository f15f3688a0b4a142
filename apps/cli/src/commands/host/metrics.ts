import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientFor, connectionOf, wantsJson } from '../../cli.ts';
import { usageError } from '../../cli-error.ts';
import { json, table } from '../../output/format.ts';

export function addHostMetricsCommand(group: Command, cli: Cli): void {
  const command = group
    .command('metrics')
    .description('Show what a host has, and how much of it is reserved.')
    .argument('[id]', 'default: the active host')
    .addHelpText('after', '\nExample:\n  fuse hosts metrics h1 -o json | jq .allocated.cpus\n')
    .action(async (given: string | undefined) => {
      const connection = await connectionOf(cli, command);
      const id = given ?? connection.activeHost;
      if (id === undefined)
        throw usageError('which host?', { hint: 'name one (`fuse hosts` lists them), or select one: fuse host ID' });
      const { state, capacity, allocated } = await clientFor(connection).hosts.get(id);
      if (wantsJson(command)) {
        await cli.io.out(json({ host_id: id, state, capacity, allocated }));
        return;
      }
      const rows = (['cpus', 'ram_mb', 'storage_gb', 'vm_count'] as const).map((name) => [
        name,
        String(allocated[name]),
        String(capacity[name]),
      ]);
      if (capacity.gpus) rows.push(['gpus', String(allocated.gpus ?? 0), String(capacity.gpus)]);
      await cli.io.out(table([`${id} (${state})`, 'RESERVED', 'CAPACITY'], rows));
    });
  addGlobalOptions(command);
}

import type { Command } from 'commander';
import { addGlobalOptions, type Cli, connectionOf, wantsJson } from '../../cli.ts';
import { json, properties } from '../../output/format.ts';

export function addContextCurrentCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('current')
    .description('Show whom commands talk to.')
    .action(async () => {
      const { name, baseUrl, master, activeHost, tenant } = await connectionOf(cli, command);
      const current = { name, base_url: baseUrl, master, active_host: activeHost, tenant, current: true };
      if (wantsJson(command)) await cli.io.out(json(current));
      else await cli.io.out(properties({ context: name, url: baseUrl, tenant, 'active host': activeHost }));
    });
  addGlobalOptions(command);
}

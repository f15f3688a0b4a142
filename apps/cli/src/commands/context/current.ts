import type { Command } from 'commander';
import { addGlobalOptions, type Cli, connectionOf, wantsJson } from '../../cli.ts';
import { json, properties } from '../../output/format.ts';

export function addContextCurrentCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('current')
    .description('Show whom commands talk to.')
    .action(async () => {
      const { name, baseUrl, master } = await connectionOf(cli, command);
      if (wantsJson(command)) await cli.io.out(json({ name, base_url: baseUrl, master, current: true }));
      else await cli.io.out(properties({ context: name, url: baseUrl }));
    });
  addGlobalOptions(command);
}

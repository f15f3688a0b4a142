import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { json } from '../../output/format.ts';
import { hostText } from '../../output/host-text.ts';

export function addHostGetCommand(group: Command, cli: Cli): void {
  const command = group
    .command('get')
    .description('Show one host.')
    .argument('<id>')
    .addHelpText('after', '\nExample:\n  fuse hosts get h1 -o json | jq .allocated\n')
    .action(async (id: string) => {
      const client = await clientOf(cli, command);
      const host = await client.hosts.get(id);
      await cli.io.out(wantsJson(command) ? json(host) : hostText(host));
    });
  addGlobalOptions(command);
}

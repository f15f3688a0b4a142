import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { json } from '../../output/format.ts';
import { hostText } from '../../output/host-text.ts';

export function addHostProbeCommand(group: Command, cli: Cli): void {
  const command = group
    .command('probe')
    .description('Ask a host now whether it is there and what it has, and show it.')
    .argument('<id>')
    .addHelpText('after', '\nExample:\n  fuse hosts probe h1      after its disk was enlarged, or its network mended\n')
    .action(async (id: string) => {
      const client = await clientOf(cli, command);
      const host = await client.hosts.probe(id);
      await cli.io.out(wantsJson(command) ? json(host) : hostText(host));
    });
  addGlobalOptions(command);
}

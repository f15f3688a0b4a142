import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { environmentText } from '../../output/environment-text.ts';
import { json } from '../../output/format.ts';

export function addEnvironmentGetCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('get')
    .description('Show one environment.')
    .argument('<id>')
    .action(async (id: string) => {
      const client = await clientOf(cli, command);
      const environment = await client.environments.get(id);
      await cli.io.out(wantsJson(command) ? json(environment) : environmentText(environment));
    });
  addGlobalOptions(command);
}

import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { healthText } from '../../output/environment-text.ts';
import { json, printable } from '../../output/format.ts';
import { refusalText } from '../../output/network-text.ts';

export function addEnvironmentWatchCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('watch')
    .aliases(['follow', 'events'])
    .description(
      'Print the states of an environment, changes of its health and what its network refuses, as they come, until it is destroyed or failed.',
    )
    .argument('<id>')
    .addHelpText(
      'after',
      '\nIts whole history first. Of all environments: fuse events\n\nExample:\n  fuse environment watch fuse-demo -o json | jq -r .state\n',
    )
    .action(async (id: string) => {
      const client = await clientOf(cli, command);
      for await (const event of await client.environments.events(id)) {
        const from = event.restored_from === undefined ? undefined : `restored from ${event.restored_from}`;
        const health = event.health === undefined ? undefined : healthText(event.health);
        const { step } = event;
        const gone = event.event === 'reset' ? 'events are missing from before here' : undefined;
        const came =
          event.event === 'step' && step !== undefined ? `${step.index + 1}/${step.total} ${step.key}` : undefined;
        const refused = event.network === undefined ? undefined : refusalText(event.network);
        const why = [came, event.error, from, health, refused, gone]
          .flatMap((text) => (text === undefined ? [] : [`  ${printable(text)}`]))
          .join('');
        await cli.io.out(wantsJson(command) ? json(event) : `${event.updated_at}  ${event.state}${why}\n`);
      }
    });
  addGlobalOptions(command);
}

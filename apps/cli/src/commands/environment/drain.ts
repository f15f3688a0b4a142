import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { longCall } from '../../long-call.ts';
import { json } from '../../output/format.ts';

const AFTER_HELP = `
It stays, to be looked at, until it is destroyed or its lifetime ends. There is no way back to running.

Example:
  fuse environment drain fuse-demo && fuse environment destroy fuse-demo --yes
`;

export function addEnvironmentDrainCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('drain')
    .description('Ask all that runs in an environment to end, and start nothing new in it.')
    .argument('<id>')
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string) => {
      const client = await clientOf(cli, command);
      const environment = await longCall(
        cli,
        { doing: `draining ${id}`, lookAgain: `fuse environment get ${id}` },
        (signal) => client.environments.drain(id, { signal }),
      );
      if (wantsJson(command)) await cli.io.out(json(environment));
      else cli.io.say(`${id} draining`);
    });
  addGlobalOptions(command);
}

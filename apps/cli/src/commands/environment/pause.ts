import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { longCall } from '../../long-call.ts';
import { json } from '../../output/format.ts';

export function addEnvironmentPauseCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('pause')
    .description('Put an environment to rest: it holds no memory and no CPU, and keeps its id, processes and files.')
    .argument('<id>')
    .addHelpText(
      'after',
      '\nExamples:\n  fuse environment pause fuse-demo && fuse environment resume fuse-demo\n  fuse environment list --state paused\n',
    )
    .action(async (id: string) => {
      const client = await clientOf(cli, command);
      const environment = await longCall(
        cli,
        { doing: `pausing ${id}`, lookAgain: `fuse environment get ${id}` },
        (signal) => client.environments.pause(id, { signal }),
      );
      if (wantsJson(command)) await cli.io.out(json(environment));
      else cli.io.say(`${id} paused`);
    });
  addGlobalOptions(command);
}

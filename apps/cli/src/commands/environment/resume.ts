import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { longCall } from '../../long-call.ts';
import { json } from '../../output/format.ts';

export function addEnvironmentResumeCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('resume')
    .description('Let a paused environment go on where it was. One that runs stays as it is.')
    .argument('<id>')
    .addHelpText(
      'after',
      '\nExample:\n  fuse environment resume fuse-demo && fuse environment exec fuse-demo -- uptime\n',
    )
    .action(async (id: string) => {
      const client = await clientOf(cli, command);
      const environment = await longCall(
        cli,
        { doing: `resuming ${id}`, lookAgain: `fuse environment get ${id}` },
        (signal) => client.environments.resume(id, { signal }),
      );
      if (wantsJson(command)) await cli.io.out(json(environment));
      else cli.io.say(`${id} runs`);
    });
  addGlobalOptions(command);
}

import { isTerminalRunState } from '@fuse/sdk';
import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { CliError } from '../../cli-error.ts';
import { json } from '../../output/format.ts';
import { cancelledRun } from '../../settled-run.ts';

export function addRunsCancelCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('cancel')
    .description('Stop a run. One that has ended stays as it is.')
    .argument('<id>')
    .action(async (id: string) => {
      const client = await clientOf(cli, command);
      const asked = await client.runs.cancel(id);
      const run = isTerminalRunState(asked.state) ? asked : (await cancelledRun(client, id))?.run;
      if (run === undefined)
        throw new CliError(`${id} was asked to stop, but it has not ended yet`, {
          hint: `look again: fuse runs get ${id}`,
        });
      if (wantsJson(command)) await cli.io.out(json(run));
      else cli.io.say(`${id}: ${run.state}`);
    });
  addGlobalOptions(command);
}

import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { processHeadings, processRow } from '../../output/exec-text.ts';
import { json, table } from '../../output/format.ts';

export function addEnvironmentPsCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('ps')
    .description('List the processes of an environment.')
    .argument('<id>')
    .action(async (id: string) => {
      const client = await clientOf(cli, command);
      const { processes, truncated } = await client.environments.processes.list(id);
      if (wantsJson(command)) return cli.io.out(json({ processes, truncated }));
      const nowMs = Date.now();
      const rows = processes.map((process) => processRow(process, nowMs));
      await cli.io.out(table(processHeadings, rows));
      if (truncated) cli.io.say('there are more');
    });
  addGlobalOptions(command);
}

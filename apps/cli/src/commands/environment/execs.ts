import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { execHeadings, execRow } from '../../output/exec-text.ts';
import { json, table } from '../../output/format.ts';

export function addEnvironmentExecsCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('execs')
    .description('List what was run in an environment, newest first; also in one that is paused or was destroyed.')
    .argument('<id>')
    .action(async (id: string) => {
      const client = await clientOf(cli, command);
      const execs = await client.environments.execs.list(id);
      if (wantsJson(command)) return cli.io.out(json({ execs }));
      if (execs.length === 0) return cli.io.say('no commands');
      const nowMs = Date.now();
      return cli.io.out(
        table(
          execHeadings,
          execs.map((exec) => execRow(exec, nowMs)),
        ),
      );
    });
  addGlobalOptions(command);
}

import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf } from '../../cli.ts';

export function addEnvironmentKillCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('kill')
    .description('End a command with everything that it started; what it wrote can still be read.')
    .argument('<id>')
    .argument('<exec>', 'see `fuse environment execs`')
    .action(async (id: string, execId: string) => {
      const client = await clientOf(cli, command);
      await client.environments.execs.kill(id, execId);
      cli.io.say(`${execId} ended`);
    });
  addGlobalOptions(command);
}

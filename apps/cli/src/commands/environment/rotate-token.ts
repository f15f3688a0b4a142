import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf } from '../../cli.ts';

const AFTER_HELP = `
What runs in it finds the new one in /fuse/auth-token. The old one is refused at once, and what was connected with it is cut.

Example:
  fuse environment rotate-token fuse-demo
`;

export function addEnvironmentRotateTokenCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('rotate-token')
    .alias('rotate')
    .description('Give an environment another credential.')
    .argument('<id>')
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string) => {
      const client = await clientOf(cli, command);
      await client.environments.rotateToken(id);
      cli.io.say(`${id} has another token`);
    });
  addGlobalOptions(command);
}

/** What the operator chooses about new environments on a host. */
import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf } from '../../cli.ts';

const choices = {
  cordon: {
    description: 'Place nothing new on a host; what is there goes on.',
    done: 'cordoned',
    example: 'fuse hosts cordon h1      before work on it',
  },
  drain: {
    description: 'Empty a host: nothing new is placed there, what is there stays until it ends or is moved.',
    done: 'draining',
    example: 'fuse hosts drain h1 && fuse environment list --host-id h1      what still is there',
  },
  uncordon: {
    description: 'Place on a host again that was cordoned or draining.',
    done: 'active',
    example: 'fuse hosts uncordon h1',
  },
} as const;

export function addHostPlacementCommands(group: Command, cli: Cli): void {
  for (const name of Object.keys(choices) as (keyof typeof choices)[]) {
    const { description, done, example } = choices[name];
    const command = group
      .command(name)
      .description(description)
      .argument('<id>')
      .addHelpText('after', `\nExample:\n  ${example}\n`)
      .action(async (id: string) => {
        const client = await clientOf(cli, command);
        await client.hosts[name](id);
        cli.io.say(`${id} ${done}`);
      });
    addGlobalOptions(command);
  }
}

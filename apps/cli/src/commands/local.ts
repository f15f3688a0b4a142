/** The local stack is run by apps/local; these commands hand over to it, options and all. */
import type { Command } from 'commander';
import type { Cli } from '../cli.ts';
import { spawnPart } from '../spawn-part.ts';

const subcommands = {
  up: 'start the local stack and wait until it is ready; harmless when it is up already',
  down: 'destroy every VM and stop the local stack; harmless when it is down already',
  status: 'show whether it is up, and what it has in use',
  logs: 'print its log',
} as const;

const PART = 'apps/local/dist/main.js';

export function addLocalCommands(parent: Command, cli: Cli): void {
  const group = parent.command('local').description('Orchestrator and host agent on this machine, in one process.');
  for (const [name, description] of Object.entries(subcommands))
    group
      .command(name)
      .description(description)
      .helpOption(false)
      .allowUnknownOption()
      .argument('[options...]')
      .action(async () => {
        const given = cli.argv.slice(cli.argv.indexOf(name) + 1);
        process.exitCode = await spawnPart(PART, [name, ...given], cli.env);
      });
}

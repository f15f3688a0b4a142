import type { Command } from 'commander';
import { addGlobalOptions, type Cli } from '../../cli.ts';
import { addContextCurrentCommand } from './current.ts';
import { addContextListCommand } from './list.ts';
import { addContextRemoveCommand } from './remove.ts';
import { addContextUseCommand } from './use.ts';

export function addContextCommands(parent: Command, cli: Cli): void {
  const group = parent
    .command('context')
    .aliases(['contexts', 'ctx'])
    .description('The orchestrators that are remembered.');
  addGlobalOptions(group);
  addContextListCommand(group, cli);
  addContextUseCommand(group, cli);
  addContextCurrentCommand(group, cli);
  addContextRemoveCommand(group, cli);
}

import type { Command } from 'commander';
import { addGlobalOptions, type Cli } from '../../cli.ts';
import { addRunsCancelCommand } from './cancel.ts';
import { addRunsGetCommand } from './get.ts';
import { addRunsListCommand } from './list.ts';
import { addRunsLogsCommand } from './logs.ts';

export function addRunsCommands(parent: Command, cli: Cli): void {
  const group = parent.command('runs').description('Look at runs, and stop them.');
  addGlobalOptions(group);
  addRunsListCommand(group, cli);
  addRunsGetCommand(group, cli);
  addRunsLogsCommand(group, cli);
  addRunsCancelCommand(group, cli);
}

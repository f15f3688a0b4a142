import type { Command } from 'commander';
import { addGlobalOptions, type Cli } from '../../cli.ts';
import { addRunsCancelCommand } from './cancel.ts';
import { addRunsGetCommand } from './get.ts';
import { addRunListOptions, addRunsListCommand, listRuns, type RunListFlags } from './list.ts';
import { addRunsLogsCommand } from './logs.ts';

export function addRunsCommands(parent: Command, cli: Cli): void {
  const group = addRunListOptions(parent.command('runs').description('List runs, look at them, stop them.'));
  group.action((flags: RunListFlags) => listRuns(cli, group, flags));
  addGlobalOptions(group);
  addRunsListCommand(group, cli);
  addRunsGetCommand(group, cli);
  addRunsLogsCommand(group, cli);
  addRunsCancelCommand(group, cli);
}

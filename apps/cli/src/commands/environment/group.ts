import type { Command } from 'commander';
import { addGlobalOptions, type Cli } from '../../cli.ts';
import { addEnvironmentCreateCommand } from './create.ts';
import { addEnvironmentDestroyCommand } from './destroy.ts';
import { addEnvironmentExecCommand } from './exec.ts';
import { addEnvironmentForkCommand } from './fork.ts';
import { addEnvironmentGetCommand } from './get.ts';
import { addEnvironmentListCommand } from './list.ts';
import { addEnvironmentPauseCommand } from './pause.ts';
import { addEnvironmentResumeCommand } from './resume.ts';
import { addEnvironmentWatchCommand } from './watch.ts';

export function addEnvironmentCommands(parent: Command, cli: Cli): void {
  const group = parent
    .command('environment')
    .aliases(['env', 'envs', 'environments'])
    .description('microVMs that stay until they are destroyed.');
  addGlobalOptions(group);
  addEnvironmentCreateCommand(group, cli);
  addEnvironmentListCommand(group, cli);
  addEnvironmentGetCommand(group, cli);
  addEnvironmentExecCommand(group, cli);
  addEnvironmentForkCommand(group, cli);
  addEnvironmentPauseCommand(group, cli);
  addEnvironmentResumeCommand(group, cli);
  addEnvironmentWatchCommand(group, cli);
  addEnvironmentDestroyCommand(group, cli);
}

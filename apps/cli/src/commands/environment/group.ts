import type { Command } from 'commander';
import { addGlobalOptions, type Cli } from '../../cli.ts';
import { addEnvironmentCatCommand } from './cat.ts';
import { addEnvironmentCreateCommand } from './create.ts';
import { addEnvironmentDestroyCommand } from './destroy.ts';
import { addEnvironmentDiffCommand } from './diff.ts';
import { addEnvironmentDrainCommand } from './drain.ts';
import { addEnvironmentEditCommand } from './edit.ts';
import { addEnvironmentExecCommand } from './exec.ts';
import { addEnvironmentExecsCommand } from './execs.ts';
import { addEnvironmentForkCommand } from './fork.ts';
import { addEnvironmentGetCommand } from './get.ts';
import { addEnvironmentKillCommand } from './kill.ts';
import { addEnvironmentListCommand } from './list.ts';
import { addEnvironmentLogsCommand } from './logs.ts';
import { addEnvironmentLsCommand } from './ls.ts';
import { addEnvironmentNetworkCommand } from './network.ts';
import { addEnvironmentPauseCommand } from './pause.ts';
import { addEnvironmentPlacementCommand } from './placement.ts';
import { addEnvironmentPsCommand } from './ps.ts';
import { addEnvironmentResumeCommand } from './resume.ts';
import { addEnvironmentRotateTokenCommand } from './rotate-token.ts';
import { addEnvironmentShellCommand } from './shell.ts';
import { addEnvironmentSignalCommand } from './signal.ts';
import { addEnvironmentUpdateCommand } from './update.ts';
import { addEnvironmentWaitCommand } from './wait.ts';
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
  addEnvironmentShellCommand(group, cli);
  addEnvironmentExecsCommand(group, cli);
  addEnvironmentLogsCommand(group, cli);
  addEnvironmentWaitCommand(group, cli);
  addEnvironmentSignalCommand(group, cli);
  addEnvironmentKillCommand(group, cli);
  addEnvironmentPsCommand(group, cli);
  addEnvironmentLsCommand(group, cli);
  addEnvironmentCatCommand(group, cli);
  addEnvironmentEditCommand(group, cli);
  addEnvironmentDiffCommand(group, cli);
  addEnvironmentForkCommand(group, cli);
  addEnvironmentPauseCommand(group, cli);
  addEnvironmentResumeCommand(group, cli);
  addEnvironmentUpdateCommand(group, cli);
  addEnvironmentRotateTokenCommand(group, cli);
  addEnvironmentNetworkCommand(group, cli);
  addEnvironmentPlacementCommand(group, cli);
  addEnvironmentWatchCommand(group, cli);
  addEnvironmentDrainCommand(group, cli);
  addEnvironmentDestroyCommand(group, cli);
}

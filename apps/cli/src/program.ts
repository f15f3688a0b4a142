/** The whole command tree; one command a file in commands/. */
import { VERSION } from '@fuse/sdk';
import { Command } from 'commander';
import { addGlobalOptions, type Cli } from './cli.ts';
import { addConnectCommand } from './commands/connect.ts';
import { addContextCommands } from './commands/context/group.ts';
import { addCpCommand } from './commands/cp.ts';
import { addDoctorCommand } from './commands/doctor.ts';
import { addEnvironmentCommands } from './commands/environment/group.ts';
import { addImageCommands } from './commands/image-list.ts';
import { addLocalCommands } from './commands/local.ts';
import { addPortForwardCommand } from './commands/port-forward.ts';
import { addRunCommand } from './commands/run.ts';
import { addRunsCommands } from './commands/runs/group.ts';
import { addSnapshotCommands } from './commands/snapshot/group.ts';
import { addStatusCommand } from './commands/status.ts';

const AFTER_HELP = `
Whom commands talk to: --context, else FUSE_URL with FUSE_TOKEN, else the context that \`fuse connect\` or
\`fuse context use\` made current, else the local stack.

Examples:
  fuse local up                             start everything on this machine
  fuse run hello.py                         run a file in a microVM of its own
  fuse run --output '*.svg' -- python3 -c … take files back
  fuse runs list                            what ran
  fuse environment create --task-id demo    a microVM that stays
  fuse environment shell fuse-demo          a terminal in it
  fuse cp src fuse-demo:                    files into it, and back
  fuse port-forward fuse-demo 8080          a port of it on this machine
  fuse snapshot create fuse-demo            memory, processes and disk as they are now
  fuse environment fork fuse-demo           a second one that goes on from there
`;

export function createProgram(cli: Cli): Command {
  const program = new Command('fuse')
    .description('Disposable microVMs for AI agents.')
    .version(VERSION, '-v, --version')
    .enablePositionalOptions()
    .showSuggestionAfterError()
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, '')) })
    .addHelpText('after', AFTER_HELP);
  program.showHelpAfterError('hint: --help shows what can be given');
  addGlobalOptions(program);
  addRunCommand(program, cli);
  addRunsCommands(program, cli);
  addEnvironmentCommands(program, cli);
  addCpCommand(program, cli);
  addPortForwardCommand(program, cli);
  addSnapshotCommands(program, cli);
  addImageCommands(program, cli);
  addLocalCommands(program, cli);
  addConnectCommand(program, cli);
  addContextCommands(program, cli);
  addStatusCommand(program, cli);
  addDoctorCommand(program, cli);
  return program;
}

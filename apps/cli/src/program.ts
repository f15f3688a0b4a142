/** The whole command tree; one command a file in commands/. */
import { VERSION } from '@fuse/sdk';
import { Command } from 'commander';
import { addGlobalOptions, type Cli } from './cli.ts';
import { addApiKeyCommands } from './commands/apikey/group.ts';
import { addAuditCommand } from './commands/audit.ts';
import { addComputerCommands } from './commands/computer/group.ts';
import { addConnectCommand } from './commands/connect.ts';
import { addContextCommands } from './commands/context/group.ts';
import { addCpCommand } from './commands/cp.ts';
import { addDoctorCommand } from './commands/doctor.ts';
import { addEnvironmentCommands } from './commands/environment/group.ts';
import { addEventsCommand } from './commands/events.ts';
import { addHostCommands } from './commands/host/group.ts';
import { addImageCommands } from './commands/image-list.ts';
import { addLocalCommands } from './commands/local.ts';
import { addMetricsCommand } from './commands/metrics.ts';
import { addPortForwardCommand } from './commands/port-forward.ts';
import { addQueueCommand } from './commands/queue.ts';
import { addQuickstartCommand } from './commands/quickstart.ts';
import { addQuotaCommands } from './commands/quotas.ts';
import { addRunCommand } from './commands/run.ts';
import { addRunsCommands } from './commands/runs/group.ts';
import { addSnapshotCommands } from './commands/snapshot/group.ts';
import { addStatusCommand } from './commands/status.ts';
import { addTenantCommands } from './commands/tenant/group.ts';
import { addUsageCommand } from './commands/usage.ts';

const AFTER_HELP = `
Whom commands talk to: --context, else FUSE_URL with FUSE_TOKEN, else the context that \`fuse connect\` or
\`fuse context use\` made current, else the local stack.

In which tenant: --tenant, else FUSE_TENANT, else the context's; with an API key always its own.

Examples:
  fuse quickstart                           a guided first environment
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
  fuse apikeys create --scope runs          a key for a client that runs things and no more
  fuse hosts                                the machines, and how full they are
`;

export function createProgram(cli: Cli): Command {
  const program = new Command('fuse')
    .description('Disposable microVMs for AI agents.')
    .version(VERSION, '-v, --version')
    .enablePositionalOptions()
    .showSuggestionAfterError()
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, 'invalid argument: ')) })
    .addHelpText('after', AFTER_HELP);
  program.showHelpAfterError('hint: --help shows what can be given');
  addGlobalOptions(program);
  addRunCommand(program, cli);
  addRunsCommands(program, cli);
  addEnvironmentCommands(program, cli);
  addCpCommand(program, cli);
  addPortForwardCommand(program, cli);
  addSnapshotCommands(program, cli);
  addComputerCommands(program, cli);
  addImageCommands(program, cli);
  addQuickstartCommand(program, cli);
  addLocalCommands(program, cli);
  addConnectCommand(program, cli);
  addContextCommands(program, cli);
  addStatusCommand(program, cli);
  addDoctorCommand(program, cli);
  addHostCommands(program, cli);
  addApiKeyCommands(program, cli);
  addTenantCommands(program, cli);
  addQuotaCommands(program, cli);
  addUsageCommand(program, cli);
  addQueueCommand(program, cli);
  addAuditCommand(program, cli);
  addEventsCommand(program, cli);
  addMetricsCommand(program, cli);
  return program;
}

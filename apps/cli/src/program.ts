/** The command tree; one command a file in commands/, loaded when it is meant: to load all takes longer than most calls. */
import { VERSION } from '@fuse/sdk';
import { Command } from 'commander';
import { addGlobalOptions, type Cli } from './cli.ts';
import { addNamed, type CommandPart, commandWords } from './command-parts.ts';

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

/** In the order of the help; each by the words that it begins with. */
const parts: readonly CommandPart[] = [
  { words: ['run'], load: async () => (await import('./commands/run.ts')).addRunCommand },
  { words: ['runs'], load: async () => (await import('./commands/runs/group.ts')).addRunsCommands },
  {
    words: ['environment', 'env', 'envs', 'environments'],
    load: async () => (await import('./commands/environment/group.ts')).addEnvironmentCommands,
  },
  { words: ['cp'], load: async () => (await import('./commands/cp.ts')).addCpCommand },
  { words: ['port-forward'], load: async () => (await import('./commands/port-forward.ts')).addPortForwardCommand },
  {
    words: ['snapshot', 'snapshots', 'snaps', 'snap'],
    load: async () => (await import('./commands/snapshot/group.ts')).addSnapshotCommands,
  },
  { words: ['desktop'], load: async () => (await import('./commands/desktop.ts')).addDesktopCommand },
  { words: ['computer'], load: async () => (await import('./commands/computer/group.ts')).addComputerCommands },
  { words: ['image', 'images'], load: async () => (await import('./commands/image-list.ts')).addImageCommands },
  { words: ['quickstart'], load: async () => (await import('./commands/quickstart.ts')).addQuickstartCommand },
  { words: ['local'], load: async () => (await import('./commands/local.ts')).addLocalCommands },
  { words: ['connect'], load: async () => (await import('./commands/connect.ts')).addConnectCommand },
  {
    words: ['context', 'contexts', 'ctx'],
    load: async () => (await import('./commands/context/group.ts')).addContextCommands,
  },
  { words: ['status'], load: async () => (await import('./commands/status.ts')).addStatusCommand },
  { words: ['doctor'], load: async () => (await import('./commands/doctor.ts')).addDoctorCommand },
  {
    words: ['hosts', 'host-list', 'host'],
    load: async () => (await import('./commands/host/group.ts')).addHostCommands,
  },
  {
    words: ['apikeys', 'apikey', 'keys'],
    load: async () => (await import('./commands/apikey/group.ts')).addApiKeyCommands,
  },
  { words: ['tenants', 'tenant'], load: async () => (await import('./commands/tenant/group.ts')).addTenantCommands },
  { words: ['quotas', 'quota'], load: async () => (await import('./commands/quotas.ts')).addQuotaCommands },
  { words: ['usage'], load: async () => (await import('./commands/usage.ts')).addUsageCommand },
  { words: ['queue'], load: async () => (await import('./commands/queue.ts')).addQueueCommand },
  { words: ['audit'], load: async () => (await import('./commands/audit.ts')).addAuditCommand },
  { words: ['events'], load: async () => (await import('./commands/events.ts')).addEventsCommand },
  { words: ['metrics'], load: async () => (await import('./commands/metrics.ts')).addMetricsCommand },
];

/** With the commands that the command line names, or all of them where it names none. */
export async function createProgram(cli: Cli): Promise<Command> {
  const program = new Command('fuse')
    .description('Disposable microVMs for AI agents.')
    .version(VERSION, '-v, --version')
    .enablePositionalOptions()
    .showSuggestionAfterError()
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, 'invalid argument: ')) })
    .addHelpText('after', AFTER_HELP);
  program.showHelpAfterError('hint: --help shows what can be given');
  addGlobalOptions(program);
  await addNamed(program, cli, parts, commandWords(cli.argv)[0]);
  return program;
}

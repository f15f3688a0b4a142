import type { Command } from 'commander';
import { addGlobalOptions, type Cli } from '../../cli.ts';
import { addNamed, type CommandPart, commandWords } from '../../command-parts.ts';

/** In the order of the help. */
const parts: readonly CommandPart[] = [
  { words: ['create'], load: async () => (await import('./create.ts')).addEnvironmentCreateCommand },
  { words: ['list'], load: async () => (await import('./list.ts')).addEnvironmentListCommand },
  { words: ['get'], load: async () => (await import('./get.ts')).addEnvironmentGetCommand },
  { words: ['exec'], load: async () => (await import('./exec.ts')).addEnvironmentExecCommand },
  { words: ['shell', 'ssh'], load: async () => (await import('./shell.ts')).addEnvironmentShellCommand },
  { words: ['execs'], load: async () => (await import('./execs.ts')).addEnvironmentExecsCommand },
  { words: ['logs'], load: async () => (await import('./logs.ts')).addEnvironmentLogsCommand },
  { words: ['wait'], load: async () => (await import('./wait.ts')).addEnvironmentWaitCommand },
  { words: ['signal'], load: async () => (await import('./signal.ts')).addEnvironmentSignalCommand },
  { words: ['kill'], load: async () => (await import('./kill.ts')).addEnvironmentKillCommand },
  { words: ['ps'], load: async () => (await import('./ps.ts')).addEnvironmentPsCommand },
  { words: ['ls'], load: async () => (await import('./ls.ts')).addEnvironmentLsCommand },
  { words: ['cat'], load: async () => (await import('./cat.ts')).addEnvironmentCatCommand },
  { words: ['edit'], load: async () => (await import('./edit.ts')).addEnvironmentEditCommand },
  { words: ['diff'], load: async () => (await import('./diff.ts')).addEnvironmentDiffCommand },
  { words: ['fork'], load: async () => (await import('./fork.ts')).addEnvironmentForkCommand },
  { words: ['pause'], load: async () => (await import('./pause.ts')).addEnvironmentPauseCommand },
  { words: ['resume'], load: async () => (await import('./resume.ts')).addEnvironmentResumeCommand },
  { words: ['update'], load: async () => (await import('./update.ts')).addEnvironmentUpdateCommand },
  {
    words: ['rotate-token', 'rotate'],
    load: async () => (await import('./rotate-token.ts')).addEnvironmentRotateTokenCommand,
  },
  { words: ['network'], load: async () => (await import('./network.ts')).addEnvironmentNetworkCommand },
  { words: ['placement'], load: async () => (await import('./placement.ts')).addEnvironmentPlacementCommand },
  { words: ['watch', 'follow', 'events'], load: async () => (await import('./watch.ts')).addEnvironmentWatchCommand },
  { words: ['drain'], load: async () => (await import('./drain.ts')).addEnvironmentDrainCommand },
  { words: ['destroy', 'rm', 'delete'], load: async () => (await import('./destroy.ts')).addEnvironmentDestroyCommand },
];

export async function addEnvironmentCommands(parent: Command, cli: Cli): Promise<void> {
  const group = parent
    .command('environment')
    .aliases(['env', 'envs', 'environments'])
    .description('microVMs that stay until they are destroyed.');
  addGlobalOptions(group);
  await addNamed(group, cli, parts, commandWords(cli.argv)[1]);
}

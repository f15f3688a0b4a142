import { isTerminalRunState } from '@fuse/sdk';
import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf } from '../../cli.ts';

/** A run that is still going on has told everything so far when nothing more comes for this long. */
const QUIET_MS = 500;

export function addRunsLogsCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('logs')
    .description("Print what a run's command wrote: its stdout on stdout, its stderr on stderr, byte for byte.")
    .argument('<id>')
    .option('-f, --follow', 'go on until the run ends')
    .action(async (id: string, { follow }: { follow?: boolean }) => {
      const client = await clientOf(cli, command);
      const quiet = new AbortController();
      const ended = isTerminalRunState((await client.runs.get(id)).state);
      let timer: NodeJS.Timeout | undefined;
      const restartTimer = () => {
        clearTimeout(timer);
        if (follow !== true && !ended) timer = setTimeout(() => quiet.abort(), QUIET_MS);
      };
      restartTimer();
      try {
        for await (const event of client.runs.events(id, { signal: quiet.signal })) {
          if (event.event === 'stdout') await cli.io.out(event.data);
          if (event.event === 'stderr') await cli.io.err(event.data);
          if (event.event === 'truncated') cli.io.say('the output is too long to be kept: what follows is missing');
          if (event.event === 'reset') cli.io.say('the stream of output was lost: it comes again from its beginning');
          restartTimer();
        }
      } catch (error) {
        if (!quiet.signal.aborted) throw error;
        cli.io.say('the run is still going on; -f follows it');
      } finally {
        clearTimeout(timer);
      }
    });
  addGlobalOptions(command);
}

import { TIMED_OUT_EXIT_CODE } from '@fuse/contract';
import type { Command } from 'commander';
import { parseDurationMs } from '../../args/duration.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { CliError } from '../../cli-error.ts';
import { exitCodeOfExec } from '../../exit-code.ts';
import { interruptSignal } from '../../interrupt.ts';
import { json } from '../../output/format.ts';

const AFTER_HELP = `
Exits with the command's own code; 124 when its time was over, or ours.
`;

export function addEnvironmentWaitCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('wait')
    .description('Wait for the end of a command, and exit as it did.')
    .argument('<id>')
    .argument('<exec>', 'see `fuse environment execs`')
    .option('--timeout <time>', 'give up after 30s, 5m … (the command runs on)', parseDurationMs)
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, execId: string, { timeout }: { timeout?: number }) => {
      const client = await clientOf(cli, command);
      const exec = await client.environments.execs.wait(id, execId, {
        signal: interruptSignal(),
        ...(timeout === undefined ? {} : { deadlineMs: timeout }),
      });
      if (wantsJson(command)) await cli.io.out(json(exec));
      if (exec.state === 'lost')
        throw new CliError(`how ${execId} ended is not known: ${exec.error ?? 'its VM was lost'}`);
      if (exec.exit === undefined)
        throw new CliError(`${execId} still runs`, {
          hint: `fuse environment wait ${id} ${execId}`,
          exitCode: TIMED_OUT_EXIT_CODE,
        });
      process.exitCode = exitCodeOfExec(exec.exit);
    });
  addGlobalOptions(command);
}

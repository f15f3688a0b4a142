import { CutStreamError } from '@fuse/sdk';
import type { Command } from 'commander';
import { parsePositiveInt } from '../../args/number.ts';
import { addGlobalOptions, type Cli, clientOf } from '../../cli.ts';
import { interruptSignal } from '../../interrupt.ts';
import { execError } from '../../output/exec-error.ts';
import { formatBytes } from '../../output/format.ts';

interface Flags {
  follow?: boolean;
  tail?: number;
}

const AFTER_HELP = `
Examples:
  fuse environment logs fuse-demo dev-server --follow --tail 4096
  fuse environment logs fuse-demo startup                 what the startup script wrote
`;

export function addEnvironmentLogsCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('logs')
    .description(
      'Print what a command wrote, to stdout and stderr; also of an environment that is paused or was destroyed.',
    )
    .argument('<id>')
    .argument('<exec>', 'see `fuse environment execs`')
    .option('-f, --follow', 'go on to its end')
    .option('--tail <bytes>', 'only about this much of its end', parsePositiveInt)
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, execId: string, { follow = false, tail }: Flags) => {
      const client = await clientOf(cli, command);
      const log = client.environments.execs.log(id, execId, {
        follow,
        signal: AbortSignal.any([interruptSignal(), cli.io.brokenPipe]),
        ...(tail === undefined ? {} : { tail }),
      });
      try {
        for await (const item of log) {
          if (item.type === 'stdout') await cli.io.out(item.data);
          else if (item.type === 'stderr') await cli.io.err(item.data);
          else if (item.type === 'gap') cli.io.say(`… ${formatBytes(item.to - item.from)} are not kept …`);
        }
      } catch (error) {
        throw error instanceof CutStreamError ? execError(error, id, execId) : error;
      }
    });
  addGlobalOptions(command, { output: false });
}

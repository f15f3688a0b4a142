import { FuseApiError, isConflict } from '@fuse/sdk';
import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf } from '../../cli.ts';
import { CliError } from '../../cli-error.ts';
import { confirm } from '../../confirm.ts';

const AFTER_HELP = `
Its environments and runs end as failed, what they had is given back, and it can be removed. Should it come back, their VMs are destroyed.
A host that may come back needs nothing: it is unreachable until then.

Example:
  fuse hosts lost h1 --yes && fuse hosts remove h1 --yes
`;

export function addHostLostCommand(group: Command, cli: Cli): void {
  const command = group
    .command('lost')
    .description('Declare that a host will not come back: all that was on it ends as failed.')
    .argument('<id>')
    .option('-y, --yes', 'without asking')
    .option('--force', 'also while it answers')
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, { yes = false, force = false }: { yes?: boolean; force?: boolean }) => {
      const client = await clientOf(cli, command);
      await confirm(`Give up ${id} and everything on it?`, yes);
      await client.hosts.markLost(id, { force }).catch(inWordsOfThisProgram);
      cli.io.say(`${id} lost`);
    });
  addGlobalOptions(command);
}

/** The API's hint names its query parameter. */
function inWordsOfThisProgram(error: unknown): never {
  if (error instanceof FuseApiError && isConflict(error))
    throw new CliError(`conflict: ${error.reason}`, { hint: 'if it is lost all the same: --force', cause: error });
  throw error;
}

import { FuseApiError, isConflict } from '@fuse/sdk';
import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { CliError } from '../../cli-error.ts';
import { confirm } from '../../confirm.ts';
import { longCall } from '../../long-call.ts';
import { formatBytes, json } from '../../output/format.ts';

interface Flags {
  yes?: boolean;
  force?: boolean;
}

export function addSnapshotDeleteCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('delete')
    .alias('rm')
    .description('Delete a snapshot. Whatever was started from it lives on.')
    .argument('<id>')
    .option('-y, --yes', 'without asking')
    .option('--force', 'also when it is the parent of another snapshot, which loses nothing')
    .action(async (id: string, { yes = false, force = false }: Flags) => {
      const client = await clientOf(cli, command);
      await confirm(`Delete ${id}?`, yes);
      const { freedHostBytes, freedStoreBytes } = await longCall(
        cli,
        { doing: `deleting ${id}`, lookAgain: `fuse snapshot get ${id}` },
        (signal) => client.snapshots.delete(id, { force, signal }).catch(inWordsOfThisProgram),
      );
      if (wantsJson(command))
        await cli.io.out(json({ id, freed_host_bytes: freedHostBytes, freed_store_bytes: freedStoreBytes }));
      else cli.io.say(`${id} deleted${freedText(freedHostBytes, freedStoreBytes)}`);
    });
  addGlobalOptions(command);
}

/** The API's hint names its query parameter. */
function inWordsOfThisProgram(error: unknown): never {
  if (isConflict(error) && error instanceof FuseApiError && error.details?.reason === 'has_children')
    throw new CliError(`conflict: ${error.reason}`, {
      hint: 'delete those first, or add --force: they lose nothing by it',
      cause: error,
    });
  throw error;
}

function freedText(host: number | undefined, store: number | undefined): string {
  if (host === undefined || store === undefined) return '';
  return `; freed ${formatBytes(host)} on its host${store === 0 ? '' : `, ${formatBytes(store)} in the object store`}`;
}

import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf } from '../../cli.ts';
import { confirm } from '../../confirm.ts';
import { longCall } from '../../long-call.ts';

const AFTER_HELP = `
Its environment keeps its id; what it did since the snapshot is lost, and commands that run in it end.
To keep both, start a new one: fuse environment create --seed-snapshot ID
`;

export function addSnapshotRestoreCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('restore')
    .description('Make an environment again what it was at a snapshot.')
    .argument('<id>')
    .option('-y, --yes', 'without asking')
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, { yes = false }: { yes?: boolean }) => {
      const client = await clientOf(cli, command);
      await confirm(`Restore ${id}? What its environment did since is lost.`, yes);
      await longCall(cli, { doing: `restoring ${id}`, lookAgain: `fuse snapshot get ${id}` }, (signal) =>
        client.snapshots.restore(id, { signal }),
      );
      cli.io.say(`${id} restored`);
    });
  addGlobalOptions(command);
}

import { type Command, Option } from 'commander';
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
    .addOption(
      new Option(
        '--fallback <part>',
        'when its memory does not fit the host any more (other VMM, CPU or kernel), boot from its disk alone',
      ).choices(['disk']),
    )
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, { yes = false, fallback }: { yes?: boolean; fallback?: 'disk' }) => {
      const client = await clientOf(cli, command);
      await confirm(`Restore ${id}? What its environment did since is lost.`, yes);
      await longCall(cli, { doing: `restoring ${id}`, lookAgain: `fuse snapshot get ${id}` }, (signal) =>
        client.snapshots.restore(id, { signal, ...(fallback === undefined ? {} : { fallback }) }),
      );
      cli.io.say(`${id} restored`);
    });
  addGlobalOptions(command);
}

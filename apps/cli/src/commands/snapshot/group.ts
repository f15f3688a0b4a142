import type { Command } from 'commander';
import { addGlobalOptions, type Cli } from '../../cli.ts';
import { addSnapshotCreateCommand } from './create.ts';
import { addSnapshotDeleteCommand } from './delete.ts';
import { addSnapshotGetCommand } from './get.ts';
import { addSnapshotListCommand } from './list.ts';
import { addSnapshotRestoreCommand } from './restore.ts';

const AFTER_HELP = `
A snapshot is one instant of an environment: its memory with everything that runs in it, its devices, its disk.
It outlives the environment it was taken of.

Examples:
  fuse snapshot create fuse-demo --name before-upgrade            while it runs on
  fuse snapshot restore SNAPSHOT --yes                            the same environment, as it was then
  fuse environment create --task-id again --seed-snapshot SNAPSHOT  a new one from it, also when the first is gone
  fuse environment fork fuse-demo --reuse-snapshot SNAPSHOT --count 5
`;

export function addSnapshotCommands(parent: Command, cli: Cli): void {
  const group = parent
    .command('snapshot')
    .aliases(['snapshots', 'snaps', 'snap'])
    .description('Environments as they were at one instant: memory, processes, disk.')
    .addHelpText('after', AFTER_HELP);
  addGlobalOptions(group);
  addSnapshotCreateCommand(group, cli);
  addSnapshotListCommand(group, cli);
  addSnapshotGetCommand(group, cli);
  addSnapshotRestoreCommand(group, cli);
  addSnapshotDeleteCommand(group, cli);
}

import { snapshotStates } from '@fuse/contract';
import type { ListSnapshotsOptions } from '@fuse/sdk';
import { type Command, Option } from 'commander';
import { parsePositiveInt } from '../../args/number.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { json, table } from '../../output/format.ts';
import { snapshotHeadings, snapshotRow } from '../../output/snapshot-text.ts';

interface Flags extends ListSnapshotsOptions {
  allPages?: boolean;
}

const AFTER_HELP = `
SIZE is what it holds, STORED what it added to the disk of its host: what had changed since its parent.

Examples:
  fuse snapshot list --vm-id fuse-demo
  fuse snapshot list --name installed --state ready -o json | jq -r '.snapshots[0].id'
`;

export function addSnapshotListCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('list')
    .alias('ls')
    .description('List snapshots, the newest first.')
    .option('--vm-id <id>', 'only those of this environment')
    .option('--task-id <id>', 'only those of this task')
    .option('--tenant-id <id>', 'only those of this tenant')
    .addOption(new Option('--state <state>', 'only those in this state').choices(snapshotStates))
    .option('--mode <word>', 'only those of this kind')
    .option('--name <name>', 'only those of this name')
    .option('--limit <n>', 'how many at most (default 50, at most 200)', parsePositiveInt)
    .option('--cursor <cursor>', 'go on where an earlier list ended')
    .option('--all-pages', 'all of them')
    .addHelpText('after', AFTER_HELP)
    .action(async ({ allPages, limit, cursor, ...filter }: Flags) => {
      const client = await clientOf(cli, command);
      const { snapshots, nextCursor } =
        allPages === true
          ? { snapshots: await client.snapshots.list(filter), nextCursor: undefined }
          : await client.snapshots.listPage({
              ...filter,
              ...(limit === undefined ? {} : { limit }),
              ...(cursor === undefined ? {} : { cursor }),
            });
      if (wantsJson(command)) {
        await cli.io.out(json({ snapshots, ...(nextCursor === undefined ? {} : { next_cursor: nextCursor }) }));
        return;
      }
      if (snapshots.length === 0) cli.io.say('no snapshots');
      else await cli.io.out(table(snapshotHeadings, snapshots.map(snapshotRow(Date.now()))));
      if (nextCursor !== undefined) cli.io.say(`there are more: --cursor ${nextCursor}, or --all-pages`);
    });
  addGlobalOptions(command);
}

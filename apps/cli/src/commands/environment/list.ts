import type { State } from '@fuse/sdk';
import type { Command } from 'commander';
import { parsePositiveInt } from '../../args/number.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { environmentHeadings, environmentRow } from '../../output/environment-text.ts';
import { json, table } from '../../output/format.ts';

export interface ListFlags {
  taskId?: string;
  state?: State;
  hostId?: string;
  limit?: number;
  cursor?: string;
  allPages?: boolean;
}

export function addEnvironmentListCommand(parent: Command, cli: Cli): void {
  const command = addListOptions(parent.command('list').description('List environments.')).action((flags: ListFlags) =>
    listEnvironments(cli, command, flags),
  );
  addGlobalOptions(command);
}

export const addListOptions = (command: Command): Command =>
  command
    .option('--task-id <id>', 'only that of this task')
    .option('--state <state>', 'only those in this state')
    .option('--host-id <id>', 'only those on this host')
    .option('--limit <n>', 'how many at most (default 50, at most 200)', parsePositiveInt)
    .option('--cursor <cursor>', 'go on where an earlier list ended')
    .option('--all-pages', 'all of them');

export async function listEnvironments(
  cli: Cli,
  command: Command,
  { allPages, limit, cursor, ...filter }: ListFlags,
): Promise<void> {
  const client = await clientOf(cli, command);
  const { environments, nextCursor } =
    allPages === true
      ? { environments: await client.environments.list(filter), nextCursor: undefined }
      : await client.environments.listPage({
          ...filter,
          ...(limit === undefined ? {} : { limit }),
          ...(cursor === undefined ? {} : { cursor }),
        });
  if (wantsJson(command)) {
    await cli.io.out(json({ environments, ...(nextCursor === undefined ? {} : { next_cursor: nextCursor }) }));
    return;
  }
  if (environments.length === 0) cli.io.say('no environments');
  else await cli.io.out(table(environmentHeadings, environments.map(environmentRow)));
  if (nextCursor !== undefined) cli.io.say(`there are more: --cursor ${nextCursor}, or --all-pages`);
}

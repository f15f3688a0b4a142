import type { State } from '@fuse/sdk';
import type { Command } from 'commander';
import { gatherLabel } from '../../args/key-value.ts';
import { addPageOptions, type PageFlags, pageOf } from '../../args/pages.ts';
import { addGlobalOptions, type Cli, clientFor, connectionOf, wantsJson } from '../../cli.ts';
import { environmentHeadings, environmentRow } from '../../output/environment-text.ts';
import { json, table } from '../../output/format.ts';

export interface ListFlags extends PageFlags {
  taskId?: string;
  state?: State;
  hostId?: string;
  tag?: Record<string, string>;
  all?: true;
  allTenants?: true;
}

const AFTER_HELP = `
With an active host (\`fuse host ID\`) only what is on it, unless --all or --host-id says otherwise.

Examples:
  fuse environment list --state running --tag team=blue
  fuse environment list --all-tenants --host-id h1        with the master token
  fuse environment list --all --all-pages -o json | jq -r ".environments[].id"
`;

export function addEnvironmentListCommand(parent: Command, cli: Cli): void {
  const command = addListOptions(parent.command('list').description('List environments.'))
    .addHelpText('after', AFTER_HELP)
    .action((flags: ListFlags) => listEnvironments(cli, command, flags));
  addGlobalOptions(command);
}

export const addListOptions = (command: Command): Command =>
  addPageOptions(
    command
      .option('--task-id <id>', 'only that of this task')
      .option('--state <state>', 'only those in this state')
      .option('--host-id <id>', 'only those on this host')
      .option('--tag <key=value>', 'only those that carry this tag; may be repeated', gatherLabel)
      .option('--all', 'also those that are not on the active host')
      .option('--all-tenants', 'with the master token: those of every tenant'),
  );

export async function listEnvironments(cli: Cli, command: Command, flags: ListFlags): Promise<void> {
  const { taskId, state, tag, all, allTenants = false, allPages } = flags;
  const connection = await connectionOf(cli, command);
  const { environments: calls } = clientFor(connection);
  const activeHost = all === true || flags.hostId !== undefined ? undefined : connection.activeHost;
  const hostId = flags.hostId ?? activeHost;
  const filter = {
    ...(taskId === undefined ? {} : { taskId }),
    ...(state === undefined ? {} : { state }),
    ...(hostId === undefined ? {} : { hostId }),
    ...(tag === undefined ? {} : { labels: tag }),
    ...(allTenants ? { allTenants } : {}),
  };
  const { environments, nextCursor } =
    allPages === true
      ? { environments: await calls.list(filter), nextCursor: undefined }
      : await calls.listPage({ ...filter, ...pageOf(flags) });
  if (activeHost !== undefined) cli.io.say(`only on ${activeHost}, the active host (--all: on every host)`);
  if (wantsJson(command)) {
    await cli.io.out(json({ environments, next_cursor: nextCursor }));
    return;
  }
  if (environments.length === 0) cli.io.say('no environments');
  else if (!allTenants) await cli.io.out(table(environmentHeadings, environments.map(environmentRow)));
  else {
    const rows = environments.map((environment) => [environment.tenant_id ?? '', ...environmentRow(environment)]);
    await cli.io.out(table(['TENANT', ...environmentHeadings], rows));
  }
  if (nextCursor !== undefined) cli.io.say(`there are more: --cursor ${nextCursor}, or --all-pages`);
}

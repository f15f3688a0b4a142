import type { Command } from 'commander';
import { addPageOptions, type PageFlags, pageOf } from '../../args/pages.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { json, table } from '../../output/format.ts';
import { hostHeadings, hostRow } from '../../output/host-text.ts';

export type HostListFlags = PageFlags;

export function addHostListCommand(group: Command, cli: Cli): void {
  const command = group.command('list').alias('ls').description('List hosts, and how much of each is reserved.');
  addHostListOptions(command)
    .addHelpText(
      'after',
      '\nExample:\n  fuse hosts list -o json | jq -r ".hosts[] | select(.state != \\"active\\").id"\n',
    )
    .action((flags: HostListFlags) => listHosts(cli, command, flags));
  addGlobalOptions(command);
}

export const addHostListOptions = addPageOptions;

export async function listHosts(cli: Cli, command: Command, flags: HostListFlags): Promise<void> {
  const client = await clientOf(cli, command);
  const { hosts, nextCursor } =
    flags.allPages === true
      ? { hosts: await client.hosts.list(), nextCursor: undefined }
      : await client.hosts.listPage(pageOf(flags));
  if (wantsJson(command)) {
    await cli.io.out(json({ hosts, next_cursor: nextCursor }));
    return;
  }
  if (hosts.length === 0) cli.io.say('no hosts');
  else await cli.io.out(table(hostHeadings, hosts.map(hostRow(Date.now()))));
  if (nextCursor !== undefined) cli.io.say(`there are more: --cursor ${nextCursor}, or --all-pages`);
}

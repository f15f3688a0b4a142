import type { Command } from 'commander';
import { type Cli, clientFor, connectionOf, globalFlags, wantsJson } from '../../cli.ts';
import { CliError, usageError } from '../../cli-error.ts';
import { contextFilePath, readContextFile, writeContextFile } from '../../config/context-file.ts';
import { json, properties } from '../../output/format.ts';

export async function selectHost(
  cli: Cli,
  command: Command,
  id: string | undefined,
  { none }: { none?: true },
): Promise<void> {
  const connection = await connectionOf(cli, command);
  const { name, activeHost } = connection;
  if (id === undefined && none !== true) {
    if (wantsJson(command)) await cli.io.out(json({ context: name, active_host: activeHost }));
    else if (activeHost === undefined) cli.io.say('no active host: lists show those of all hosts');
    else await cli.io.out(properties({ context: name, 'active host': activeHost }));
    return;
  }
  if (id !== undefined && none === true) throw usageError('either a host or --none');
  const path = contextFilePath(globalFlags(command).config, cli.env);
  const file = await readContextFile(path);
  if (!file.contexts.some((each) => each.name === name))
    throw new CliError(`${name} is not a context: there is nowhere to remember a host for it`, {
      hint: '`fuse connect` makes one; --host-id does the same for one command',
    });
  if (id !== undefined) await clientFor(connection).hosts.get(id);
  const contexts = file.contexts.map((each) => {
    if (each.name !== name) return each;
    const { active_host: _, ...context } = each;
    return id === undefined ? context : { ...context, active_host: id };
  });
  await writeContextFile(path, { ...file, contexts });
  cli.io.say(id === undefined ? `${name}: no active host` : `${name}: ${id} is the active host`);
}

import type { ComputerAction, ComputerResult } from '@fuse/sdk';
import type { Command } from 'commander';
import { type Cli, clientOf, wantsJson } from '../../cli.ts';
import { json, printable } from '../../output/format.ts';

export async function act(cli: Cli, command: Command, id: string, action: ComputerAction): Promise<ComputerResult> {
  const client = await clientOf(cli, command);
  return client.environments.computer(id, action);
}

/** Says what came of it; a screenshot is for the JSON. */
export async function actAndTell(cli: Cli, command: Command, id: string, action: ComputerAction): Promise<void> {
  const result = await act(cli, command, id, action);
  if (wantsJson(command)) await cli.io.out(json(result));
  else cli.io.say(result.output ? printable(result.output) : 'done');
}

import type { FuseClient } from '@fuse/sdk';
import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { environmentText } from '../../output/environment-text.ts';
import { json, properties } from '../../output/format.ts';

const DISPLAY_MS = 3_000;

export function addEnvironmentGetCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('get')
    .description('Show one environment.')
    .argument('<id>')
    .addHelpText('after', '\nExample:\n  fuse environment get fuse-demo -o json | jq -r .expires_at\n')
    .action(async (id: string) => {
      const client = await clientOf(cli, command);
      const environment = await client.environments.get(id);
      if (wantsJson(command)) {
        await cli.io.out(json(environment));
        return;
      }
      const display = environment.state === 'running' ? await displayOf(client, id) : undefined;
      await cli.io.out(environmentText(environment) + properties({ display }));
    });
  addGlobalOptions(command);
}

/** Most have none, and an environment can be shown without it. */
async function displayOf({ environments }: FuseClient, id: string): Promise<string | undefined> {
  const known = environments.computerDisplay(id, { signal: AbortSignal.timeout(DISPLAY_MS) });
  const { up, width, height } = await known.catch(() => ({ up: false, width: 0, height: 0 }));
  return up ? `${width}x${height}` : undefined;
}

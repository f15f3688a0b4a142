import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { json } from '../../output/format.ts';
import { snapshotText } from '../../output/snapshot-text.ts';

export function addSnapshotGetCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('get')
    .description('Show one snapshot.')
    .argument('<id>')
    .action(async (id: string) => {
      const client = await clientOf(cli, command);
      const snapshot = await client.snapshots.get(id);
      await cli.io.out(wantsJson(command) ? json(snapshot) : snapshotText(snapshot));
    });
  addGlobalOptions(command);
}

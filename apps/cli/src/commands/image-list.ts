import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../cli.ts';
import { formatBytes, json, table } from '../output/format.ts';

export function addImageCommands(parent: Command, cli: Cli): void {
  const group = parent.command('image').alias('images').description('The root file systems that VMs start from.');
  addGlobalOptions(group);
  const command = group
    .command('list')
    .alias('ls')
    .description('List the images that the hosts have.')
    .action(async () => {
      const client = await clientOf(cli, command);
      const images = await client.images.list();
      if (wantsJson(command)) {
        await cli.io.out(json({ images }));
        return;
      }
      if (images.length === 0) cli.io.say('no images');
      const rows = images.map((image) => [
        image.name,
        formatBytes(image.size_bytes),
        image.digest.slice(0, 12),
        image.description ?? '',
      ]);
      if (rows.length > 0) await cli.io.out(table(['NAME', 'SIZE', 'DIGEST', 'DESCRIPTION'], rows));
    });
  addGlobalOptions(command);
}

import type { Command } from 'commander';
import { addGlobalOptions, type Cli, globalFlags } from '../../cli.ts';
import {
  contextFilePath,
  contextNamed,
  readContextFile,
  withoutContext,
  writeContextFile,
} from '../../config/context-file.ts';

export function addContextRemoveCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('remove')
    .alias('rm')
    .description('Forget one, its token included.')
    .argument('<name>')
    .action(async (name: string) => {
      const path = contextFilePath(globalFlags(command).config, cli.env);
      const file = await readContextFile(path);
      contextNamed(file, name);
      await writeContextFile(path, withoutContext(file, name));
      cli.io.say(`forgot ${name}`);
    });
  addGlobalOptions(command);
}

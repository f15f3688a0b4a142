import type { Command } from 'commander';
import { addGlobalOptions, type Cli, globalFlags } from '../../cli.ts';
import { contextFilePath, contextNamed, readContextFile, writeContextFile } from '../../config/context-file.ts';

export function addContextUseCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('use')
    .description('Use this one from now on.')
    .argument('<name>')
    .action(async (name: string) => {
      const path = contextFilePath(globalFlags(command).config, cli.env);
      const file = await readContextFile(path);
      const context = contextNamed(file, name);
      await writeContextFile(path, { ...file, current_context: name });
      cli.io.say(`using ${name} (${context.base_url})`);
    });
  addGlobalOptions(command);
}

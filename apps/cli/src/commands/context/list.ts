import type { Command } from 'commander';
import { addGlobalOptions, type Cli, globalFlags, wantsJson } from '../../cli.ts';
import { contextFilePath, readContextFile } from '../../config/context-file.ts';
import { json, table } from '../../output/format.ts';

export function addContextListCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('list')
    .alias('ls')
    .description('List them. Tokens are not shown.')
    .action(async () => {
      const file = await readContextFile(contextFilePath(globalFlags(command).config, cli.env));
      const contexts = file.contexts.map(({ name, base_url, master = false, active_host }) => ({
        name,
        base_url,
        master,
        ...(active_host === undefined ? {} : { active_host }),
        current: name === file.current_context,
      }));
      if (wantsJson(command)) {
        await cli.io.out(json(contexts));
        return;
      }
      if (contexts.length === 0) cli.io.say('no contexts');
      const rows = contexts.map((each) => [each.current ? '*' : '', each.name, each.base_url]);
      if (rows.length > 0) await cli.io.out(table(['', 'NAME', 'URL'], rows));
    });
  addGlobalOptions(command);
}

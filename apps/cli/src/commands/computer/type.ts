import type { Command } from 'commander';
import { addGlobalOptions, type Cli } from '../../cli.ts';
import { actAndTell } from './act.ts';

export function addComputerTypeCommand(group: Command, cli: Cli): void {
  const command = group
    .command('type')
    .description('Type text.')
    .argument('<id>')
    .argument('<text...>', 'words are joined by spaces')
    .addHelpText('after', '\nExample:\n  fuse computer type fuse-demo "hello world"\n')
    .action((id: string, words: string[]) => actAndTell(cli, command, id, { action: 'type', text: words.join(' ') }));
  addGlobalOptions(command);
}

import type { Command } from 'commander';
import { addGlobalOptions, type Cli } from '../../cli.ts';
import { actAndTell } from './act.ts';

export function addComputerKeyCommand(group: Command, cli: Cli): void {
  const command = group
    .command('key')
    .description('Press a key, or several together.')
    .argument('<id>')
    .argument('<combination>', 'such as Return, ctrl+s, alt+F4')
    .addHelpText('after', '\nExample:\n  fuse computer key fuse-demo ctrl+s\n')
    .action((id: string, text: string) => actAndTell(cli, command, id, { action: 'key', text }));
  addGlobalOptions(command);
}

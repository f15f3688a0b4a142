import type { Command } from 'commander';
import { addGlobalOptions, type Cli } from '../../cli.ts';
import { addComputerClickCommand } from './click.ts';
import { addComputerKeyCommand } from './key.ts';
import { addComputerScreenshotCommand } from './screenshot.ts';
import { addComputerTypeCommand } from './type.ts';

const AFTER_HELP = `
They need an image with a display.

Examples:
  fuse computer screenshot fuse-demo --out screen.png
  fuse computer click fuse-demo 640 400
  fuse computer type fuse-demo hello world
  fuse computer key fuse-demo ctrl+s
`;

export function addComputerCommands(parent: Command, cli: Cli): void {
  const group = parent
    .command('computer')
    .description('See and use the display of an environment.')
    .addHelpText('after', AFTER_HELP);
  addGlobalOptions(group);
  addComputerScreenshotCommand(group, cli);
  addComputerClickCommand(group, cli);
  addComputerTypeCommand(group, cli);
  addComputerKeyCommand(group, cli);
}

import { type Command, InvalidArgumentError } from 'commander';
import { addGlobalOptions, type Cli } from '../../cli.ts';
import { actAndTell } from './act.ts';

export function addComputerClickCommand(group: Command, cli: Cli): void {
  const command = group
    .command('click')
    .description('Click with the left button.')
    .argument('<id>')
    .argument('<x>', 'pixels from the left', parseCoordinate)
    .argument('<y>', 'pixels from the top', parseCoordinate)
    .addHelpText('after', '\nExample:\n  fuse computer click fuse-demo 640 400\n')
    .action((id: string, x: number, y: number) =>
      actAndTell(cli, command, id, { action: 'left_click', coordinate: [x, y] }),
    );
  addGlobalOptions(command);
}

function parseCoordinate(text: string): number {
  if (!/^\d{1,5}$/.test(text) || Number(text) > 10_000) throw new InvalidArgumentError('Write pixels, 0 to 10000.');
  return Number(text);
}

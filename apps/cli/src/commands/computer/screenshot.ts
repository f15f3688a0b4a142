import { writeFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { addGlobalOptions, type Cli, wantsJson } from '../../cli.ts';
import { CliError } from '../../cli-error.ts';
import { json } from '../../output/format.ts';
import { act } from './act.ts';

const AFTER_HELP = `
Examples:
  fuse computer screenshot fuse-demo --out screen.png
  fuse computer screenshot fuse-demo --out - | display
`;

export function addComputerScreenshotCommand(group: Command, cli: Cli): void {
  const command = group
    .command('screenshot')
    .description('Take a picture of the display, as PNG.')
    .argument('<id>')
    .option('--out <file>', 'where to write it (default: ID.png); - for standard output')
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, { out = `${id.replaceAll('/', '_')}.png` }: { out?: string }) => {
      const result = await act(cli, command, id, { action: 'screenshot' });
      if (wantsJson(command)) {
        await cli.io.out(json(result));
        return;
      }
      if (!result.screenshot) throw new CliError('the answer has no picture in it');
      const picture = Buffer.from(result.screenshot, 'base64');
      if (out === '-') {
        await cli.io.out(picture);
        return;
      }
      await writeFile(out, picture);
      cli.io.say(`${out}: ${picture.length} bytes`);
    });
  addGlobalOptions(command);
}

import type { Command } from 'commander';
import { guestOperands } from '../../args/location.ts';
import { addGlobalOptions, type Cli, clientOf } from '../../cli.ts';
import { interruptSignal } from '../../interrupt.ts';

export function addEnvironmentCatCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('cat')
    .description('Print a file of an environment, byte for byte.')
    .usage('[options] ID:PATH')
    .argument('<id:path...>', 'relative paths are below /workspace')
    .action(async (operands: string[]) => {
      const { id, path } = guestOperands(operands);
      const client = await clientOf(cli, command);
      const signal = AbortSignal.any([interruptSignal(), cli.io.brokenPipe]);
      const bytes = await client.environments.files(id).createReadStream(path, { signal });
      for await (const chunk of bytes) await cli.io.out(chunk);
    });
  addGlobalOptions(command, { output: false });
}

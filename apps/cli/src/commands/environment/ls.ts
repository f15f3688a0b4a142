import type { FileInfo } from '@fuse/sdk';
import type { Command } from 'commander';
import { guestOperands } from '../../args/location.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { interruptSignal } from '../../interrupt.ts';
import { fileLine, fileName } from '../../output/file-text.ts';
import { json } from '../../output/format.ts';
import { addListOptions, type ListFlags, listEnvironments } from './list.ts';

interface Flags extends ListFlags {
  long?: boolean;
  recursive?: boolean;
}

const AFTER_HELP = `
Without an operand it lists environments, as \`fuse environment list\` does.
Examples:
  fuse environment ls fuse-demo                 what is in /workspace
  fuse environment ls -l fuse-demo:/etc
  fuse environment ls -R fuse-demo:src -o json
`;

export function addEnvironmentLsCommand(parent: Command, cli: Cli): void {
  const command = addListOptions(parent.command('ls'))
    .description('List files of an environment; or environments.')
    .usage('[options] [ID:PATH]')
    .argument('[id:path...]', 'relative paths are below /workspace')
    .option('-l, --long', 'mode, owner, size and time too')
    .option('-R, --recursive', 'everything below it')
    .addHelpText('after', AFTER_HELP)
    .action(async (operands: string[], { long = false, recursive = false, ...flags }: Flags) => {
      if (operands.length === 0) return listEnvironments(cli, command, flags);
      const { id, path } = guestOperands(operands);
      const files = (await clientOf(cli, command)).environments.files(id);
      const call = { signal: AbortSignal.any([interruptSignal(), cli.io.brokenPipe]) };
      const itself = await files.stat(path, call);
      const entries =
        itself.type === 'directory'
          ? await files.readdir(path, {
              ...call,
              recursive,
              ...(flags.limit === undefined ? {} : { limit: flags.limit }),
            })
          : [itself];
      if (wantsJson(command)) return cli.io.out(json({ entries }));
      const nameOf = (entry: FileInfo) => (recursive ? entry.path : entry.name);
      const lines = entries.map((entry) => (long ? fileLine(entry, nameOf(entry)) : fileName(nameOf(entry))));
      return cli.io.out(lines.map((line) => `${line}\n`).join(''));
    });
  addGlobalOptions(command);
}

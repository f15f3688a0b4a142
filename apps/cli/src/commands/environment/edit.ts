import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { RemoteFiles } from '@fuse/sdk';
import { type Command, InvalidArgumentError } from 'commander';
import { guestOperands } from '../../args/location.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { CliError, usageError } from '../../cli-error.ts';
import { editorArgv, runEditor } from '../../files/editor.ts';
import { temporaryCopy } from '../../files/temporary-copy.ts';
import { json, printable } from '../../output/format.ts';

interface Flags {
  old?: string;
  new?: string;
  all?: true;
  patch?: string;
  strip?: number;
}

const AFTER_HELP = `
Without options it opens $VISUAL or $EDITOR on a copy, and writes that back when you have changed it and nobody else has changed the file.
Examples:
  fuse environment edit fuse-demo:src/app.py
  fuse environment edit fuse-demo:src/app.py --old 'DEBUG = True' --new 'DEBUG = False'   must be there exactly once, or --all
  git diff | fuse environment edit fuse-demo:/workspace/src --patch -                     a unified diff of files below that directory
`;

export function addEnvironmentEditCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('edit')
    .description('Edit a file of an environment: in your editor, by replacing text, or by a patch.')
    .usage('[options] ID:PATH')
    .argument('<id:path...>', 'relative paths are below /workspace')
    .option('--old <text>', 'the text to replace, exactly', parseText)
    .option('--new <text>', 'what comes in its place')
    .option('--all', 'everywhere, not only where it is the one place')
    .option('--patch <file>', 'apply this unified diff below the directory; - is standard input')
    .option('--strip <n>', "leading parts to take off the patch's paths (default 1)", parseStrip)
    .addHelpText('after', AFTER_HELP)
    .action(async (operands: string[], flags: Flags) => {
      const { id, path } = guestOperands(operands);
      const byText = flags.old !== undefined || flags.new !== undefined;
      if (byText && flags.patch !== undefined) throw usageError('give either --old and --new, or --patch');
      const files = (await clientOf(cli, command)).environments.files(id);
      if (flags.patch !== undefined) {
        const patch = await readText(flags.patch);
        const done = await files.applyPatch(path, patch, flags.strip === undefined ? {} : { strip: flags.strip });
        if (wantsJson(command)) return cli.io.out(json(done));
        for (const file of done.files) cli.io.say(printable(`${file.action} ${file.path}`));
        return;
      }
      if (byText) {
        if (flags.old === undefined || flags.new === undefined) throw usageError('--old and --new go together');
        const done = await files.edit(path, {
          old_text: flags.old,
          new_text: flags.new,
          ...(flags.all === true ? { replace_all: true } : {}),
        });
        if (wantsJson(command)) return cli.io.out(json(done));
        return cli.io.say(printable(`${done.replacements} replaced in ${path}`));
      }
      return editByHand(cli, files, { id, path });
    });
  addGlobalOptions(command);
}

async function readText(path: string): Promise<string> {
  if (path !== '-') return readFile(path, 'utf8');
  let text = '';
  for await (const chunk of process.stdin.setEncoding('utf8')) text += chunk;
  return text;
}

/** The look at the file before it is written back leaves a moment in which somebody else's write would be lost. */
async function editByHand(cli: Cli, files: RemoteFiles, { id, path }: { id: string; path: string }): Promise<void> {
  const argv = editorArgv(cli.env);
  const before = await files.readFile(path);
  const copy = await temporaryCopy(path, before);
  let keep = false;
  try {
    await runEditor(argv, copy.path);
    const after = await readFile(copy.path);
    if (sha256(after) === sha256(before)) return cli.io.say('nothing changed');
    keep = true;
    if (sha256(await files.readFile(path)) !== sha256(before))
      throw new CliError(`${id}:${path} was changed by somebody else meanwhile`, {
        hint: `yours is kept in ${copy.path}: fuse environment diff ${id}:${path} ${copy.path}`,
      });
    await files.writeFile(path, after);
    keep = false;
    cli.io.say(printable(`${path} written`));
  } catch (error) {
    if (keep && !(error instanceof CliError)) cli.io.say(`your copy is kept in ${copy.path}`);
    throw error;
  } finally {
    if (!keep) await copy.remove();
  }
}

function parseText(text: string): string {
  if (text === '') throw new InvalidArgumentError('It must not be empty.');
  return text;
}

function parseStrip(text: string): number {
  if (!/^\d{1,2}$/.test(text) || Number(text) > 16) throw new InvalidArgumentError('Write a number from 0 to 16.');
  return Number(text);
}

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

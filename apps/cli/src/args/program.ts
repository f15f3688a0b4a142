/** How a program file is run: by its extension, else by its first line. */
import { basename } from 'node:path';
import { RUN_WORKSPACE } from '@fuse/contract';
import { usageError } from '../cli-error.ts';

/** Unbuffered, so that output comes as it is written. */
const interpreters: Readonly<Record<string, readonly string[]>> = {
  '.py': ['python3', '-u'],
  '.js': ['node'],
  '.mjs': ['node'],
  '.cjs': ['node'],
};

/** `head` is the beginning of the file, its first line at least. */
export function programArgv(path: string, head: string, args: readonly string[]): string[] {
  const name = basename(path);
  const guestPath = `${RUN_WORKSPACE}/${name}`;
  const extension = /\.[^.]+$/.exec(name)?.[0].toLowerCase() ?? '';
  const interpreter = interpreters[extension] ?? shebang(head) ?? (extension === '.sh' ? ['sh'] : undefined);
  if (interpreter !== undefined) return [...interpreter, guestPath, ...args];
  throw usageError(`do not know how to run ${path}`, {
    hint: 'name a .py, .js, .mjs, .cjs or .sh file, or a command: fuse run --input FILE -- COMMAND',
  });
}

/** As the kernel reads it: a program and at most one argument. */
function shebang(head: string): string[] | undefined {
  const match = /^#![ \t]*([^ \t\r\n]+)(?:[ \t]+([^\r\n]*?))?[ \t]*\r?(?:\n|$)/.exec(head);
  const [, program, argument] = match ?? [];
  if (program === undefined) return undefined;
  return argument === undefined || argument === '' ? [program] : [program, argument];
}

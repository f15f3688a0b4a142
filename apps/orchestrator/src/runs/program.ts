/** What a run executes: a command as it stands, a shell line, or code that becomes a file of its own. */
import { type CreateRun, invalidField, type Language, RUN_WORKSPACE } from '@fuse/contract';
import { CODE_DIRECTORY } from './guest-path.ts';

export interface Program {
  argv: string[];
  /** Added where the client set none of that name. */
  env: Record<string, string>;
  file?: { path: string; content: string };
}

/** Linux takes no single argument or variable of 128 KiB or more, ending NUL included. */
export const MAX_ARGUMENT_BYTES = 131_071;
/** Linux gives arguments and environment 2 MiB together; the guest's own part is small. */
const MAX_ARGUMENTS_BYTES = 1_048_576;

export function programOf(run: CreateRun): Program {
  if (run.cmd !== undefined) return { argv: run.cmd, env: {} };
  if (run.shell !== undefined) return shellProgram(run.shell);
  if (run.code !== undefined && run.language !== undefined)
    return codeProgram(run.code, run.language, run.cwd ?? RUN_WORKSPACE);
  throw invalidField('cmd', 'exactly one of cmd, shell and code is required');
}

function shellProgram(line: string): Program {
  if (line.includes('\0')) throw invalidField('shell', 'must not hold NUL');
  if (Buffer.byteLength(line) <= MAX_ARGUMENT_BYTES) return { argv: ['sh', '-lc', line], env: {} };
  const path = `${CODE_DIRECTORY}/main.sh`;
  return { argv: ['sh', '-l', path], env: {}, file: { path, content: line } };
}

function codeProgram(content: string, language: Language, cwd: string): Program {
  switch (language) {
    case 'python': {
      const path = `${CODE_DIRECTORY}/main.py`;
      // The code's own directory is not where its modules are: imports look in the working directory too.
      return { argv: ['python3', '-u', path], env: { PYTHONPATH: cwd }, file: { path, content } };
    }
    case 'javascript': {
      const path = `${CODE_DIRECTORY}/main.${isEsModule(content) ? 'mjs' : 'cjs'}`;
      return { argv: ['node', path], env: {}, file: { path, content } };
    }
    case 'shell': {
      const path = `${CODE_DIRECTORY}/main.sh`;
      return { argv: ['sh', path], env: {}, file: { path, content } };
    }
  }
}

/** Node tells the two kinds apart by extension alone; an import or export statement is what only one of them may have. */
const isEsModule = (code: string): boolean =>
  /^\s*(?:import\s*(?:[\w$*{"']|\/\*)|export\s+(?:default|const|let|var|function|class|async)\b|export\s*[{*])/m.test(
    code,
  );

/** Refuses what the guest's kernel would. */
export function checkArguments(run: CreateRun, argv: readonly string[], env: Readonly<Record<string, string>>): void {
  let total = 0;
  const count = (field: string, text: string) => {
    const bytes = Buffer.byteLength(text);
    if (bytes > MAX_ARGUMENT_BYTES)
      throw invalidField(field, `is over ${MAX_ARGUMENT_BYTES} bytes`, 'pass it as a file');
    total += bytes + 9; // ending NUL and pointer
  };
  const field = run.cmd !== undefined ? 'cmd' : run.shell !== undefined ? 'shell' : 'code';
  argv.forEach((arg, index) => {
    count(field === 'cmd' ? `cmd.${index}` : field, arg);
  });
  for (const [name, value] of Object.entries(env)) count(`env.${name}`, `${name}=${value}`);
  if (total > MAX_ARGUMENTS_BYTES)
    throw invalidField(
      field,
      `arguments and env are over ${MAX_ARGUMENTS_BYTES} bytes together`,
      'pass large values as files or stdin',
    );
}

/**
 * The local stack as a program. Without a command it serves in the foreground; `fuse local …` starts it with one.
 * Data goes to stdout, talk to stderr; a failure is a sentence and `hint: …`, and exit code 1.
 */
import { parseArgs } from 'node:util';
import { AppError } from '@fuse/contract';
import { Failure, say } from './failure.ts';
import { homeOf } from './home.ts';

const HELP = `Usage: fuse local <command> [options]

  up      start orchestrator and host agent on this machine and wait until they are ready
            --foreground   in this terminal; Ctrl-C destroys all VMs and stops it
  down    destroy every VM, stop, and see that nothing is left
  status  show whether it is up and what it has in use      -o json, --json
  logs    print the log                                     -f follow, -n LINES (default 200)

Environment: FUSE_HOME (default ~/.fuse) where everything is kept, FUSE_PORT (default 8080) where it listens.

Examples:
  fuse local up && fuse run hello.py
  FUSE_PORT=8081 fuse local up
  fuse local status -o json
`;

const options = {
  foreground: { type: 'boolean' },
  background: { type: 'boolean' },
  follow: { type: 'boolean', short: 'f' },
  lines: { type: 'string', short: 'n' },
  output: { type: 'string', short: 'o' },
  json: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const;

async function main(argv: readonly string[]): Promise<number> {
  const { values, positionals } = parse(argv);
  const [command = 'serve', ...more] = positionals;
  if (values.help === true) {
    process.stdout.write(HELP);
    return 0;
  }
  if (more.length > 0)
    throw new Failure(`unknown argument ${JSON.stringify(more[0])}`, '--help shows what can be given');
  const home = homeOf(process.env);
  switch (command) {
    case 'serve':
      return await serving(values.background === true);
    case 'up': {
      const { requireAssets, up } = await import('./up.ts');
      if (values.foreground !== true) await up(home, process.env);
      else {
        await requireAssets(home);
        return await serving(false);
      }
      return 0;
    }
    case 'down':
      await (await import('./down.ts')).down(home, process.env);
      return 0;
    case 'status':
      if (values.output !== undefined && !['json', 'table'].includes(values.output))
        throw new Failure(`unknown output format ${JSON.stringify(values.output)}`, 'it is table or json');
      return await (await import('./status.ts')).status(home, {
        json: values.json === true || values.output === 'json',
      });
    case 'logs': {
      const lines = Number(values.lines ?? 200);
      if (!Number.isInteger(lines) || lines < 1) throw new Failure('-n: is not a number of lines');
      await (await import('./logs.ts')).logs(home, { follow: values.follow === true, lines });
      return 0;
    }
    default:
      throw new Failure(`unknown command ${JSON.stringify(command)}`, '--help shows what can be given');
  }

  async function serving(background: boolean): Promise<number> {
    await (await import('./serve.ts')).serve(home, process.env, { background });
    return 0;
  }
}

function parse(argv: readonly string[]) {
  try {
    return parseArgs({ args: [...argv], options, allowPositionals: true });
  } catch (error) {
    // The first sentence; what follows is about positional arguments that begin with a dash.
    const [problem = ''] = error instanceof Error ? error.message.split('. ') : [];
    throw new Failure(problem, '--help shows what can be given', error);
  }
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  process.exitCode = 1;
  const known =
    error instanceof Failure || error instanceof AppError || (error instanceof Error && error.name === 'ConfigError');
  if (!known) throw error;
  say(error.message);
  if ('hint' in error && typeof error.hint === 'string') say(`hint: ${error.hint}`);
}

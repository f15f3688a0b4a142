import { bytesFromBase64, type ExecRequest, type ExecResult } from '@fuse/sdk';
import type { Command } from 'commander';
import { parseDurationMs } from '../../args/duration.ts';
import { gatherEnv } from '../../args/key-value.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { CliError } from '../../cli-error.ts';
import { TIMED_OUT_EXIT_CODE } from '../../exit-code.ts';
import { formatBytes, json } from '../../output/format.ts';

interface Flags {
  shell?: string;
  timeout?: number;
  env?: Record<string, string>;
  cwd?: string;
  user?: string;
}

const AFTER_HELP = `
Exits with the command's own code; 124 when its time was over.

Examples:
  fuse environment exec fuse-demo -- ls -l /
  fuse environment exec fuse-demo --shell 'ps aux | wc -l'
`;

export function addEnvironmentExecCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('exec')
    .description('Run one command in an environment and print what it wrote, byte for byte.')
    .usage('[options] ID -- COMMAND [args...]')
    .argument('<id>')
    .argument('[command...]')
    .option('--shell <line>', 'run this line by the shell instead of a command')
    .option('--timeout <time>', 'end it after 30s, 5m … (default 1m, at most 10m)', parseDurationMs)
    .option('--env <KEY[=value]>', 'set a variable, or pass on the one set here; may be repeated', gatherEnv(cli.env))
    .option('--cwd <dir>', 'working directory')
    .option('--user <name>', 'as this user')
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, argv: string[], flags: Flags) => {
      if (argv.length > 0 === (flags.shell !== undefined))
        throw new CliError('give either a command or --shell', { hint: `fuse environment exec ${id} -- COMMAND` });
      const client = await clientOf(cli, command);
      const request: ExecRequest = {
        ...(argv.length > 0 ? { cmd: argv } : { shell: flags.shell }),
        timeout_ms: flags.timeout,
        env: flags.env,
        cwd: flags.cwd,
        user: flags.user,
      };
      if (wantsJson(command)) {
        const result = await client.environments.exec(id, request);
        await cli.io.out(json(result));
        process.exitCode = exitCode(result);
        return;
      }
      const result = await client.environments.exec(id, { ...request, encoding: 'base64' });
      await cli.io.out(bytesFromBase64(result.stdout));
      await cli.io.err(bytesFromBase64(result.stderr));
      for (const line of remarks(result)) cli.io.say(line);
      process.exitCode = exitCode(result);
    });
  addGlobalOptions(command);
}

const exitCode = (result: ExecResult): number => (result.timed_out ? TIMED_OUT_EXIT_CODE : result.exit_code);

function* remarks(result: ExecResult): Generator<string> {
  if (result.timed_out) yield `timed out after ${result.duration_ms} ms`;
  if (result.oom_killed) yield 'out of memory';
  if (result.truncated)
    yield `the output is cut; it was ${formatBytes(result.stdout_bytes)} on stdout, ${formatBytes(result.stderr_bytes)} on stderr`;
}

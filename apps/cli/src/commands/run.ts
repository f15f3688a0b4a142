/** `fuse run`: one task in a fresh microVM, as if it ran here. */
import { existsSync } from 'node:fs';
import type { FuseClient, RunOptions, RunResult } from '@fuse/sdk';
import type { Command } from 'commander';
import { type RunTarget, runTarget } from '../args/command-line.ts';
import { parseDurationMs } from '../args/duration.ts';
import { type InputSpec, parseInputSpec } from '../args/input-spec.ts';
import { gatherEnv, gatherLabel, gatherText } from '../args/key-value.ts';
import { addNetworkOptions } from '../args/network.ts';
import { parsePositiveInt } from '../args/number.ts';
import { parseSizeGiB, parseSizeMiB } from '../args/size.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../cli.ts';
import { usageError } from '../cli-error.ts';
import { exitCodeOf } from '../exit-code.ts';
import { saveOutputs } from '../files/save-outputs.ts';
import { Interrupted, interruptSignal } from '../interrupt.ts';
import { json } from '../output/format.ts';
import { runSummary } from '../output/run-summary.ts';
import { type Progress, type RequestFlags, runRequest } from '../run-request.ts';
import { cancelledRun, withDestroyTime } from '../settled-run.ts';

interface RunFlags extends RequestFlags {
  outputDir: string;
  json?: boolean;
  quiet?: boolean;
  idempotencyKey?: string;
}

const AFTER_HELP = `
FILE is a .py, .js, .mjs, .cjs or .sh file, or one whose first line names its interpreter. It is put into /workspace
and run there with what follows it as its arguments. After "--" comes any command that the image has.

Examples:
  fuse run analyze.py                                       run a Python file
  fuse run analyze.py --year 2024                           options behind FILE are the program's own
  fuse run --input data.csv --output 'report.*' analyze.py  give it a file, take files back
  fuse run --input src:src --timeout 5m -- make -C src test a directory, a time limit, a command
  cat log.txt | fuse run --stdin -- grep -c error           pipe through it
  fuse run --allow pypi.org --allow files.pythonhosted.org -- pip install six    what it may reach (default: nothing)
  fuse run --json -- uname -a | jq .timings                 the result as JSON

Exits with the command's own code. Besides: 124 its time was over, 130 cancelled (Ctrl-C; twice: leave at once),
141 nobody read the output any more, 1 no result (refused, no room, VM lost, outputs not saved).
`;

export function addRunCommand(parent: Command, cli: Cli): void {
  const command = addNetworkOptions(parent.command('run'))
    .summary('run a file or a command in a fresh microVM')
    .description('Run a file or a command in a fresh microVM: stream its output, save what it leaves, destroy the VM.')
    .usage('[options] FILE [args...]\n       fuse run [options] -- COMMAND [args...]')
    .argument('[operands...]')
    .passThroughOptions()
    .option('--image <name>', 'image to start from (see `fuse image list`)')
    .option('--cpus <n>', 'virtual CPUs', parsePositiveInt)
    .option('--ram <size>', 'memory, such as 512M or 2G', parseSizeMiB)
    .option('--disk <size>', 'writable disk, such as 2G', parseSizeGiB)
    .option('--timeout <time>', 'end the command after 30s, 5m, 1h …', parseDurationMs)
    .option('--queue-timeout <time>', 'how long to wait for room on a host', parseDurationMs)
    .option('--env <KEY[=value]>', 'set a variable, or pass on the one set here; may be repeated', gatherEnv(cli.env))
    .option('--cwd <dir>', 'working directory in the VM (default /workspace)')
    .option('--input <local[:guest]>', 'copy a file or directory into /workspace; may be repeated', gatherInput)
    .option(
      '--output <glob>',
      'files to save when the command has ended, such as "out/**"; may be repeated',
      gatherText,
    )
    .option('--output-dir <dir>', 'where to save them', 'outputs')
    .option('--stdin', 'pass on standard input, to its end')
    .option('--label <key=value>', 'find the run again by it; may be repeated', gatherLabel)
    .option('--json', 'print the result as JSON instead of streaming the output')
    .option('--quiet', 'say nothing but what the command says')
    .option('--idempotency-key <key>', 'sent twice under one key, the command runs once')
    .addHelpText('after', AFTER_HELP)
    .action(async (operands: string[], flags: RunFlags) => {
      const target = runTarget(cli.argv, operands);
      if (target === undefined) throw usageError('nothing to run', { hint: 'fuse run FILE, or fuse run -- COMMAND' });
      const asJson = flags.json === true || wantsJson(command);
      process.exitCode = await run({ cli, client: await clientOf(cli, command), flags, asJson }, target);
    });
  addGlobalOptions(command, { output: false });
}

const gatherInput = (text: string, soFar: InputSpec[] = []): InputSpec[] => [
  ...soFar,
  parseInputSpec(text, existsSync),
];

interface RunContext {
  cli: Cli;
  client: FuseClient;
  flags: RunFlags;
  asJson: boolean;
}

async function run(context: RunContext, target: RunTarget): Promise<number> {
  const { cli, client, flags, asJson } = context;
  const signal = AbortSignal.any([interruptSignal(), cli.io.brokenPipe]);
  const say = (line: string) => {
    if (flags.quiet !== true) cli.io.say(line);
  };
  let runId: string | undefined;
  try {
    const request = await runRequest(client, target, flags, { signal, say });
    const options: RunOptions = {
      signal,
      ...(flags.idempotencyKey === undefined ? {} : { idempotencyKey: flags.idempotencyKey }),
      onCreated: ({ id }) => {
        runId = id;
      },
      onEvent: (event) => {
        if (event.event === 'truncated') say('the output is too long to be kept: what follows is missing');
        if (event.event === 'reset') say('the stream of output was lost: it comes again from its beginning');
      },
      ...(asJson ? {} : { onStdout: (bytes) => cli.io.out(bytes), onStderr: (bytes) => cli.io.err(bytes) }),
    };
    const ended = await client.runs.run(request, options);
    return await conclude(context, ended, { signal, say });
  } catch (error) {
    // The SDK has asked the server to cancel; what came of it is worth a look.
    if (signal.aborted && runId !== undefined) {
      const end = await cancelledRun(client, runId);
      say(end === undefined ? `${runId}: asked to stop, but it has not ended yet` : `${runId}: ${end.state}`);
    }
    if (error instanceof Interrupted) return error.exitCode;
    throw error;
  }
}

/** Outputs are saved whatever the command exited with. */
async function conclude(context: RunContext, ended: RunResult, { signal, say }: Progress): Promise<number> {
  const { cli, client, flags, asJson } = context;
  const saved = await saveOutputs(client, ended, flags.outputDir, signal);
  const result = await withDestroyTime(client, ended);
  if (asJson) await cli.io.out(json({ ...result.run, saved_outputs: saved }));
  for (const line of runSummary(result, saved)) say(line);
  return exitCodeOf(result);
}

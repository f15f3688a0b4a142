import { randomUUID } from 'node:crypto';
import { addAbortSignal, type Readable } from 'node:stream';
import { EXEC_MAX_TIMEOUT_MS } from '@fuse/contract';
import type { ExecExit, ExecRequest, FuseClient, SpawnOptions } from '@fuse/sdk';
import { FuseError } from '@fuse/sdk';
import type { Command } from 'commander';
import { parseDurationMs } from '../../args/duration.ts';
import { gatherEnv } from '../../args/key-value.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { usageError } from '../../cli-error.ts';
import { endExec } from '../../end-exec.ts';
import { exitCodeOfExec } from '../../exit-code.ts';
import { interruptSignal } from '../../interrupt.ts';
import { execError } from '../../output/exec-error.ts';
import { formatBytes, formatMs, json } from '../../output/format.ts';

interface Flags {
  shell?: string;
  timeout?: number;
  env?: Record<string, string>;
  cwd?: string;
  user?: string;
  stdin?: true;
  background?: true;
  id?: string;
}

const AFTER_HELP = `
Exits with the command's own code; 124 when its time was over, 130 after Ctrl-C (which ends the command with all that it started; twice: leave at once).
Examples:
  fuse environment exec fuse-demo -- ls -l /
  fuse environment exec fuse-demo --shell 'ps aux | wc -l'
  tar c src | fuse environment exec -i fuse-demo -- tar x        its standard input is ours
  fuse environment exec --background fuse-demo -- npm run dev    prints an id for \`fuse environment logs\`, \`wait\` and \`kill\`
`;

export function addEnvironmentExecCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('exec')
    .description('Run one command in an environment: what it writes comes as it writes it, byte for byte.')
    .usage('[options] ID -- COMMAND [args...]')
    .argument('<id>')
    .argument('[command...]')
    .option('--shell <line>', 'run this line by the shell instead of a command')
    .option('-i, --stdin', 'pass on standard input, to its end')
    .option('--timeout <time>', 'end it after 30s, 5m, 2h … (default: never)', parseDurationMs)
    .option('--env <KEY[=value]>', 'set a variable, or pass on the one set here; may be repeated', gatherEnv(cli.env))
    .option('--cwd <dir>', 'working directory (default /workspace)')
    .option('--user <name>', 'as this user')
    .option('--background', 'print its id once it is started, and leave it running')
    .option('--id <id>', 'its id; an exec that has it already is not started again')
    .addHelpText('after', AFTER_HELP)
    .showHelpAfterError('hint: options of the command itself come behind --, as in fuse environment exec ID -- ls -l')
    .action(async (id: string, argv: string[], flags: Flags) => {
      if (argv.length > 0 === (flags.shell !== undefined))
        throw usageError('give either a command or --shell', { hint: `fuse environment exec ${id} -- COMMAND` });
      if (flags.background === true && flags.stdin === true)
        throw usageError('a command in the background cannot have our standard input');
      const client = await clientOf(cli, command);
      const request = requestOf(argv, flags);
      if (flags.background === true) return start(cli, client, id, request, wantsJson(command));
      const signal = AbortSignal.any([interruptSignal(), cli.io.brokenPipe]);
      const withStdin = flags.stdin === true;
      const asJson = wantsJson(command);
      const allOfStdin = asJson && withStdin ? await readAll(process.stdin, signal) : undefined;
      try {
        process.exitCode = asJson
          ? await runForJson(cli, client, { id, request, signal }, allOfStdin)
          : await stream(cli, client, { id, request, signal }, withStdin);
      } catch (error) {
        // Stopped, or what it writes cannot be passed on.
        if (signal.aborted || !(error instanceof FuseError)) await endExec(cli, client, id, request.id);
        signal.throwIfAborted();
        throw execError(error, id, request.id);
      }
    });
  addGlobalOptions(command);
}

/** Its id is chosen here, so that it can be named whatever happens. */
type Request = ExecRequest & { id: string };

function requestOf(argv: string[], { id = randomUUID(), shell, timeout, env, cwd, user }: Flags): Request {
  return {
    id,
    ...(argv.length > 0 ? { cmd: argv } : { shell }),
    ...(timeout === undefined ? {} : { timeout_ms: timeout }),
    ...(env === undefined ? {} : { env }),
    ...(cwd === undefined ? {} : { cwd }),
    ...(user === undefined ? {} : { user }),
  };
}

function spawnOptions({ cmd, shell, id, timeout_ms, env, cwd, user }: Request): SpawnOptions {
  return {
    id,
    ...(cmd === undefined ? {} : { cmd }),
    ...(shell === undefined ? {} : { shell }),
    ...(timeout_ms === undefined ? {} : { timeoutMs: timeout_ms }),
    ...(env === undefined ? {} : { env }),
    ...(cwd === undefined ? {} : { cwd }),
    ...(user === undefined ? {} : { user }),
  };
}

async function start(cli: Cli, client: FuseClient, id: string, request: Request, asJson: boolean): Promise<void> {
  const exec = await client.environments.execs.start(id, request);
  await cli.io.out(asJson ? json(exec) : `${exec.id}\n`);
  if (!asJson) cli.io.say(`runs on: fuse environment logs --follow ${id} ${exec.id}`);
}

interface Attended {
  id: string;
  request: Request;
  signal: AbortSignal;
}

async function runForJson(
  cli: Cli,
  client: FuseClient,
  { id, request, signal }: Attended,
  stdin: Buffer | undefined,
): Promise<number> {
  const input = stdin === undefined ? {} : { stdin: stdin.toString('base64'), stdin_encoding: 'base64' as const };
  // Without a limit the API's own default would hold.
  const timeout_ms = request.timeout_ms ?? EXEC_MAX_TIMEOUT_MS;
  const result = await client.environments.exec(id, { ...request, ...input, timeout_ms }, { signal });
  await cli.io.out(json(result));
  return exitCodeOfExec(result);
}

async function stream(
  cli: Cli,
  client: FuseClient,
  { id, request, signal }: Attended,
  withStdin: boolean,
): Promise<number> {
  const remote = await client.environments.spawn(
    id,
    { ...spawnOptions(request), stdin: withStdin ? 'pipe' : 'ignore' },
    { signal, onGap: ({ from, to }) => cli.io.say(`${formatBytes(to - from)} of output are missing here`) },
  );
  // A command that takes no more of it says so by its end.
  if (withStdin) void feed(process.stdin, remote.stdin).catch(() => {});
  const [exit] = await Promise.all([
    remote.exit,
    copy(remote.stdout, (chunk) => cli.io.out(chunk)),
    copy(remote.stderr, (chunk) => cli.io.err(chunk)),
  ]);
  for (const line of remarks(exit)) cli.io.say(line);
  return exitCodeOfExec(exit);
}

async function feed(input: AsyncIterable<Uint8Array>, stdin: WritableStream<Uint8Array>): Promise<void> {
  const writer = stdin.getWriter();
  for await (const chunk of input) await writer.write(chunk);
  await writer.close();
}

async function copy(stream: ReadableStream<Uint8Array>, write: (chunk: Uint8Array) => Promise<void>): Promise<void> {
  for await (const chunk of stream) await write(chunk);
}

async function readAll(input: Readable, signal: AbortSignal): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  try {
    for await (const chunk of addAbortSignal(signal, input)) chunks.push(chunk);
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  }
  return Buffer.concat(chunks);
}

function* remarks(exit: ExecExit): Generator<string> {
  if (exit.timed_out) yield `timed out after ${formatMs(exit.duration_ms)}`;
  if (exit.oom_killed) yield 'out of memory';
}

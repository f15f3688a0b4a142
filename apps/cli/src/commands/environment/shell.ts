import type { FuseClient, Terminal } from '@fuse/sdk';
import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { CliError } from '../../cli-error.ts';
import { exitCodeOfExec } from '../../exit-code.ts';
import { Interrupted } from '../../interrupt.ts';
import { sessionHeadings, sessionRow } from '../../output/exec-text.ts';
import { json, table } from '../../output/format.ts';
import { DEFAULT_DETACH_KEYS, DetachScanner, parseDetachKeys } from '../../terminal/detach-keys.ts';
import { RawTerminal } from '../../terminal/raw-terminal.ts';

interface Flags {
  session?: string;
  list?: true;
  detachKeys?: Uint8Array;
  user?: string;
  cwd?: string;
}

const AFTER_HELP = `
A session outlives the connection: leave it with ctrl-p ctrl-q, come back with --session. A lost connection is made again by itself.
Exits with the shell's own code.
Examples:
  fuse environment shell fuse-demo                    a login shell
  fuse environment shell fuse-demo -- top             a program in a terminal
  fuse environment shell --session work fuse-demo     the session "work": begun, or joined again
  fuse environment shell --list fuse-demo             sessions that there are
`;

export function addEnvironmentShellCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('shell')
    .alias('ssh')
    .description('A terminal in an environment.')
    .usage('[options] ID [-- COMMAND args...]')
    .argument('<id>')
    .argument('[command...]')
    .option('--session <id>', 'begin this session, or join it again')
    .option('--list', 'list the sessions that there are')
    .option('--detach-keys <keys>', `keys that leave it running (default ${DEFAULT_DETACH_KEYS})`, parseDetachKeys)
    .option('--user <name>', 'as this user')
    .option('--cwd <dir>', 'where to begin (default /workspace)')
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, argv: string[], flags: Flags) => {
      const client = await clientOf(cli, command);
      if (flags.list === true) return list(cli, client, id, wantsJson(command));
      const keys = flags.detachKeys ?? parseDetachKeys(DEFAULT_DETACH_KEYS);
      if (process.stdin.isTTY !== true || process.stdout.isTTY !== true)
        throw new CliError('shell needs a terminal', { hint: `fuse environment exec -i ${id} -- COMMAND needs none` });
      process.exitCode = await attach(cli, client, { id, argv, keys, flags });
    });
  addGlobalOptions(command);
}

async function list(cli: Cli, client: FuseClient, id: string, asJson: boolean): Promise<void> {
  const execs = await client.environments.execs.list(id, { tty: true });
  if (asJson) return cli.io.out(json({ execs }));
  if (execs.length === 0) return cli.io.say('no sessions');
  const nowMs = Date.now();
  const rows = execs.map((exec) => sessionRow(exec, nowMs));
  return cli.io.out(table(sessionHeadings, rows));
}

interface Attachment {
  id: string;
  argv: string[];
  keys: Uint8Array;
  flags: Flags;
}

/** What the terminal is left with when it is whole again. */
type Ending = { exitCode: number; say?: string };

async function attach(cli: Cli, client: FuseClient, { id, argv, keys, flags }: Attachment): Promise<number> {
  const { session, user, cwd } = flags;
  const size = { rows: process.stdout.rows || 24, cols: process.stdout.columns || 80 };
  const remote = await client.environments.attach(id, {
    ...size,
    ...(session === undefined ? {} : { session }),
    ...(argv.length === 0 ? {} : { cmd: argv }),
    ...(user === undefined ? {} : { user }),
    ...(cwd === undefined ? {} : { cwd }),
    onConnection: (state) =>
      cli.io.say(state === 'lost' ? '\r\n[the connection is lost; trying again]\r' : '\r\n[connected again]\r'),
  });
  const ending = await inRawTerminal(remote, keys, id);
  if (ending.say !== undefined) cli.io.say(ending.say);
  return ending.exitCode;
}

async function inRawTerminal(remote: Terminal, keys: Uint8Array, id: string): Promise<Ending> {
  const local = new RawTerminal();
  try {
    const detached = typeInto(remote, new DetachScanner(keys));
    local.onResize(() => void remote.resize(local.size.rows, local.size.cols).catch(() => {}));
    const shown = show(remote, local);
    shown.catch(() => {}); // the same as `exit` rejects with
    const interrupted = new Promise<never>((_, reject) => {
      local.ended.addEventListener('abort', () => reject(local.ended.reason), { once: true });
    });
    const ended = remote.exit.then(async (exit): Promise<Ending> => {
      await shown;
      return { exitCode: exitCodeOfExec(exit) };
    });
    const left = detached.then(
      (): Ending => ({
        exitCode: 0,
        say: `\r\ndetached; it goes on: fuse environment shell --session ${remote.session} ${id}`,
      }),
    );
    return await Promise.race([ended, left, interrupted]);
  } catch (error) {
    if (error instanceof Interrupted) return { exitCode: error.exitCode };
    throw error;
  } finally {
    local[Symbol.dispose]();
    await remote.close();
  }
}

/** Resolves when the keys that detach were typed; never for any other reason. */
function typeInto(remote: Terminal, scanner: DetachScanner): Promise<void> {
  return new Promise((resolve) => {
    process.stdin.on('data', (chunk: Buffer) => {
      const { pass, detached } = scanner.push(chunk);
      // What cannot be sent shows in the session's end.
      if (pass.length > 0) void remote.write(pass).catch(() => {});
      if (!detached) return;
      process.stdin.removeAllListeners('data');
      resolve();
    });
    process.stdin.resume();
  });
}

async function show(remote: Terminal, local: RawTerminal): Promise<void> {
  for await (const chunk of remote.output) await local.write(chunk);
}

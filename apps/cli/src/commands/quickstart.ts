/** A guided first environment: whom to talk to, a microVM, a command in it. Everything that it does is a command that can be typed, and it says which. */
import { createInterface, type Interface } from 'node:readline/promises';
import type { FuseClient } from '@fuse/sdk';
import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientFor, globalFlags } from '../cli.ts';
import { CliError } from '../cli-error.ts';
import { type Connection, resolveConnection } from '../config/connection.ts';
import { Interrupted } from '../interrupt.ts';
import { printable } from '../output/format.ts';
import { spawnPart } from '../spawn-part.ts';
import { rememberOrchestrator } from './connect.ts';

type Ask = (question: string, usual: string) => Promise<string>;

export function addQuickstartCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('quickstart')
    .description('Make a first environment, step by step.')
    .addHelpText(
      'after',
      '\nIt asks questions, so it needs a terminal. In scripts: fuse local up, fuse environment create, fuse environment exec.\n',
    )
    .action(async () => {
      if (process.stdin.isTTY !== true || process.stderr.isTTY !== true)
        throw new CliError('quickstart asks questions, so it needs a terminal', {
          hint: 'in a script: fuse local up && fuse environment create --task-id demo && fuse environment exec fuse-demo -- uname -a',
        });
      const terminal = createInterface({ input: process.stdin, output: process.stderr });
      const gone = new AbortController();
      terminal.on('SIGINT', () => gone.abort(new Interrupted('SIGINT')));
      terminal.on('close', () => gone.abort(new Interrupted('SIGHUP')));
      try {
        await guide(cli, command, asker(terminal, gone.signal), terminal);
      } catch (error) {
        throw gone.signal.aborted ? gone.signal.reason : error;
      } finally {
        terminal.close();
      }
    });
  addGlobalOptions(command);
}

const asker =
  (terminal: Interface, signal: AbortSignal): Ask =>
  async (question, usual) =>
    (await terminal.question(`${question} [${usual}] `, { signal })).trim() || usual;

async function guide(cli: Cli, command: Command, ask: Ask, terminal: Interface): Promise<void> {
  const say = (line: string) => cli.io.say(line);
  const connection = await connected(cli, command, ask, terminal);
  say(`\n1. Talking to ${connection.baseUrl} (${connection.name}).`);
  const client = clientFor(connection);
  await client.environments.listPage({ limit: 1 });

  const task = await ask('\n2. A microVM, for which task?', 'demo');
  say(`   $ fuse environment create --task-id ${task}`);
  const { id } = await client.environments.create({ task_id: task });
  say(`   ${printable(id)} is running.`);

  const line = await ask('\n3. What shall it run?', 'uname -a; id; ls /');
  say(`   $ fuse environment exec ${id} --shell '${line}'`);
  await run(cli, client, id, line);

  const answer = await ask('\n4. Destroy it?', 'no');
  if (/^y(es)?$/i.test(answer)) {
    await client.environments.destroy(id);
    say(`   $ fuse environment destroy ${id}`);
  }
  say(`\nFrom here:
  fuse environment shell ${id}      a terminal in it
  fuse cp . ${id}:                  files into it, and back
  fuse environment fork ${id}       a second one that goes on from there
  fuse run hello.py                 a microVM for one command
  fuse --help                       all there is`);
}

async function connected(cli: Cli, command: Command, ask: Ask, terminal: Interface): Promise<Connection> {
  const flags = globalFlags(command);
  try {
    return await resolveConnection(flags, cli.env);
  } catch (error) {
    // Something else than that there is nobody to talk to yet.
    if (flags.context !== undefined || !(error instanceof CliError) || !error.message.startsWith('no active'))
      throw error;
  }
  const url = await ask(
    'Nobody to talk to yet. The URL of an orchestrator, or "local" for one on this machine:',
    'local',
  );
  if (url === 'local') {
    cli.io.say('   $ fuse local up');
    terminal.pause();
    const code = await spawnPart('apps/local/dist/main.js', ['up'], cli.env);
    terminal.resume();
    if (code !== 0) throw new CliError('the local stack did not start', { hint: '`fuse doctor` says what is missing' });
  } else {
    const token = await ask('Its token (also FUSE_TOKEN):', cli.env.FUSE_TOKEN ? 'that of FUSE_TOKEN' : 'none');
    const given = token === 'none' ? undefined : token === 'that of FUSE_TOKEN' ? cli.env.FUSE_TOKEN : token;
    const entry = await rememberOrchestrator(cli, flags, { url, token: given, master: false, verify: true });
    cli.io.say(`   remembered as context ${entry.name} (fuse connect ${entry.base_url})`);
  }
  return await resolveConnection(flags, cli.env);
}

async function run(cli: Cli, client: FuseClient, id: string, line: string): Promise<void> {
  const { exit_code, stdout, stderr } = await client.environments.exec(id, { shell: line });
  await cli.io.out(stdout);
  await cli.io.err(Buffer.from(stderr));
  cli.io.say(`   It ended with ${exit_code}.`);
}

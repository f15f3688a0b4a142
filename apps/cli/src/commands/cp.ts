/** `fuse cp`: files and directories in and out of environments, and between two of them. */
import type { Stats } from 'node:fs';
import { stat } from 'node:fs/promises';
import { type FuseClient, isNotFound } from '@fuse/sdk';
import { type Copied, type CopyOptions, copyIn, copyOut } from '@fuse/sdk/node';
import type { Command } from 'commander';
import { type Location, parseLocation } from '../args/location.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../cli.ts';
import { CliError, usageError } from '../cli-error.ts';
import { type CopyDestination, type CopySource, copyTarget } from '../files/copy-target.ts';
import { interruptSignal } from '../interrupt.ts';
import { CopyProgressLine } from '../output/copy-progress.ts';
import { reasonOf } from '../output/error-text.ts';
import { formatBytes, json, printable } from '../output/format.ts';

interface Flags {
  tar?: true;
  user?: string;
  quiet?: true;
}

/** A guest can have any number of them. */
const MAX_TOLD = 20;

type Guest = Extract<Location, { kind: 'guest' }>;

const AFTER_HELP = `
As docker cp: what is copied to a directory that exists goes into it, DIR/. is what is in DIR; a directory copied to a path that does not exist becomes
it. Relative paths in an environment are below /workspace. Modes are kept, but for setuid and its like; symbolic links stay links. On the way out of an
environment those that lead out of the directory, and devices and pipes, are left out, and told.
Examples:
  fuse cp app.py fuse-demo:                      to /workspace/app.py
  fuse cp src/. fuse-demo:/opt/app               what is in src
  fuse cp fuse-demo:results ./                   back, as ./results
  fuse cp fuse-demo:log.txt - | grep error       a file to standard output
  pg_dump mydb | fuse cp - fuse-demo:dump.sql    standard input to a file
  fuse cp --tar fuse-demo:/etc - > etc.tar       a directory as a tar; --tar - ID:DIR unpacks one there
`;

export function addCpCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('cp')
    .summary('copy files into and out of environments')
    .description('Copy files and directories into an environment, out of one, or from one to another.')
    .usage('[options] FROM... TO')
    .argument('<paths...>', 'ID:PATH, a path here, or - for standard input or output')
    .option('--tar', 'what - carries is a tar of a directory')
    .option('--user <name>', 'who owns what is copied into an environment (default root)')
    .option('-q, --quiet', 'show no progress')
    .addHelpText('after', AFTER_HELP)
    .action(async (paths: string[], flags: Flags) => {
      const to = paths.at(-1);
      const from = paths.slice(0, -1);
      if (to === undefined || from.length === 0) throw usageError('give what to copy, and where to');
      if (flags.tar === true && !paths.includes('-'))
        throw usageError('--tar says what - carries, and there is none', {
          hint: 'directories are copied without it',
        });
      const client = await clientOf(cli, command);
      const copier = new Copier(cli, client, flags);
      const copied = await copier.copyAll(from.map(parseLocation), parseLocation(to), to);
      if (wantsJson(command)) await cli.io.out(json({ copied }));
    });
  addGlobalOptions(command);
}

class Copier {
  readonly #cli: Cli;
  readonly #client: FuseClient;
  readonly #flags: Flags;
  readonly #signal: AbortSignal;

  constructor(cli: Cli, client: FuseClient, flags: Flags) {
    this.#cli = cli;
    this.#client = client;
    this.#flags = flags;
    this.#signal = AbortSignal.any([interruptSignal(), cli.io.brokenPipe]);
  }

  async copyAll(sources: Location[], to: Location, written: string): Promise<Copied[]> {
    if (sources.length > 1 && (to.kind === 'standard' || (await this.#look(to)).is !== 'directory'))
      throw new CliError(`${written} is not a directory`, { hint: 'Several things are copied into a directory.' });
    const copied: Copied[] = [];
    for (const from of sources) {
      const done = await this.#copy(from, to);
      if (done !== undefined) copied.push(done);
    }
    return copied;
  }

  async #copy(from: Location, to: Location): Promise<Copied | undefined> {
    if (from.kind === 'standard' && to.kind === 'guest') return this.#fromStandard(to);
    if (from.kind === 'guest' && to.kind === 'standard') return this.#toStandard(from);
    if (from.kind === 'local' && to.kind === 'guest') return this.#in(from.path, to);
    if (from.kind === 'guest' && to.kind === 'local') return this.#out(from, to.path);
    if (from.kind === 'guest' && to.kind === 'guest') return this.#across(from, to);
    throw usageError('one side has to be in an environment', { hint: 'Write it as ID:PATH.' });
  }

  async #in(path: string, to: Guest): Promise<Copied> {
    const info = await stat(path).catch((cause: Error) => {
      throw new CliError(reasonOf(cause), { cause });
    });
    const source: CopySource = { path, isDirectory: info.isDirectory() };
    const target = copyTarget(source, await this.#look(to));
    return this.#shown((options) => copyIn(this.#client, path, to.id, target, { ...options, ...this.#owner }));
  }

  async #out(from: Guest, path: string): Promise<Copied> {
    const source = await this.#source(from);
    const target = copyTarget(source, await this.#look({ kind: 'local', path }));
    return this.#shown((options) => copyOut(this.#client, from.id, from.path, target, options));
  }

  /** Through this machine, held nowhere. */
  async #across(from: Guest, to: Guest): Promise<undefined> {
    const source = await this.#source(from);
    const target = copyTarget(source, await this.#look(to));
    const call = { signal: this.#signal };
    const [there, here] = [this.#client.environments.files(from.id), this.#client.environments.files(to.id)];
    if (source.isDirectory) await here.untar(target, await there.tar(from.path, call), { ...call, ...this.#owner });
    else {
      const { body, mode } = await there.open(from.path, call);
      await here.writeFile(target, body, { ...call, ...this.#owner, ...(mode === undefined ? {} : { mode }) });
    }
    this.#say(`${from.id}:${from.path} -> ${to.id}:${target}`);
  }

  async #fromStandard(to: Guest): Promise<undefined> {
    const files = this.#client.environments.files(to.id);
    const call = { signal: this.#signal, ...this.#owner };
    const input = ReadableStream.from(process.stdin as AsyncIterable<Uint8Array>);
    if (this.#flags.tar === true) {
      const done = await files.untar(to.path, input, call);
      this.#say(`${done.files} files, ${formatBytes(done.bytes)} -> ${to.id}:${to.path}`);
      return;
    }
    const { is } = await this.#look(to);
    if (is === 'directory' || to.path.endsWith('/'))
      throw new CliError(`${to.path} is a directory`, { hint: 'Name the file, or give --tar to unpack there.' });
    const { size_bytes } = await files.writeFile(to.path, input, call);
    this.#say(`${formatBytes(size_bytes)} -> ${to.id}:${to.path}`);
  }

  async #toStandard(from: Guest): Promise<undefined> {
    const files = this.#client.environments.files(from.id);
    const call = { signal: this.#signal };
    const { isDirectory } = await this.#source(from);
    if (isDirectory && this.#flags.tar !== true)
      throw new CliError(`${from.path} is a directory`, { hint: 'Give --tar to have it as a tar.' });
    const bytes =
      this.#flags.tar === true ? await files.tar(from.path, call) : await files.createReadStream(from.path, call);
    for await (const chunk of bytes) await this.#cli.io.out(chunk);
  }

  async #source(from: Guest): Promise<CopySource> {
    const { type } = await this.#client.environments.files(from.id).stat(from.path, { signal: this.#signal });
    return { path: from.path, isDirectory: type === 'directory' };
  }

  async #look(to: Location): Promise<CopyDestination> {
    if (to.kind === 'standard') throw usageError('- is a stream');
    const found =
      to.kind === 'local'
        ? await stat(to.path).then(
            (info) => kindOf(to.path, info),
            (error: NodeJS.ErrnoException) => {
              if (error.code === 'ENOENT') return undefined;
              throw new CliError(reasonOf(error), { cause: error });
            },
          )
        : await this.#client.environments
            .files(to.id)
            .stat(to.path, { signal: this.#signal })
            .then(
              ({ type }) => (type === 'directory' ? 'directory' : 'file'),
              async (error: unknown) => {
                // The path, not the environment.
                if (!isNotFound(error)) throw error;
                await this.#client.environments.get(to.id, { signal: this.#signal });
                return undefined;
              },
            );
    return { path: to.path, is: found };
  }

  get #owner(): { user?: string } {
    return this.#flags.user === undefined ? {} : { user: this.#flags.user };
  }

  async #shown(copy: (options: CopyOptions) => Promise<Copied>): Promise<Copied> {
    const line = new CopyProgressLine(this.#cli.io, this.#flags.quiet === true);
    try {
      const copied = await copy({ signal: this.#signal, onProgress: (progress) => line.show(progress) });
      line.end();
      for (const { path, reason } of copied.skipped.slice(0, MAX_TOLD))
        this.#cli.io.say(`left out: ${printable(path)} (${reason.replaceAll('_', ' ')})`);
      if (copied.skipped.length > MAX_TOLD) this.#cli.io.say(`left out: ${copied.skipped.length - MAX_TOLD} more`);
      return copied;
    } finally {
      line.end();
    }
  }

  #say(text: string): void {
    if (this.#flags.quiet !== true && this.#cli.io.errIsTerminal) this.#cli.io.say(printable(text));
  }
}

/** A device or a pipe is no place for a file: it would be replaced by it. */
function kindOf(path: string, info: Stats): 'file' | 'directory' {
  if (info.isDirectory()) return 'directory';
  if (info.isFile()) return 'file';
  throw new CliError(`${path} is neither a file nor a directory`, { hint: `fuse cp ID:PATH - > ${path}` });
}

/** From a command line to the request that the API takes: files are read or uploaded on the way. */
import { open } from 'node:fs/promises';
import { basename } from 'node:path';
import { Readable } from 'node:stream';
import type { CreateRun, FuseClient } from '@fuse/sdk';
import type { RunTarget } from './args/command-line.ts';
import type { InputSpec } from './args/input-spec.ts';
import { type NetworkFlags, networkOf } from './args/network.ts';
import { programArgv } from './args/program.ts';
import { CliError } from './cli-error.ts';
import { asRunFiles, findInputs } from './files/inputs.ts';
import { formatBytes, printable } from './output/format.ts';

/** Those flags of `fuse run` that go into the request. */
export interface RequestFlags extends NetworkFlags {
  image?: string;
  cpus?: number;
  ram?: number;
  disk?: number;
  timeout?: number;
  queueTimeout?: number;
  env?: Record<string, string>;
  cwd?: string;
  input?: InputSpec[];
  output?: string[];
  stdin?: boolean;
  label?: Record<string, string>;
}

export interface Progress {
  signal: AbortSignal;
  say: (line: string) => void;
}

export async function runRequest(
  client: FuseClient,
  target: RunTarget,
  flags: RequestFlags,
  progress: Progress,
): Promise<CreateRun> {
  const cmd =
    target.kind === 'command' ? target.argv : programArgv(target.path, await headOf(target.path), target.args);
  const program: InputSpec[] = target.kind === 'command' ? [] : [{ local: target.path, guest: basename(target.path) }];
  const found = await findInputs([...program, ...(flags.input ?? [])], (path, reason) =>
    progress.say(`left out: ${printable(path)}: ${reason}`),
  );
  const files = await asRunFiles(client, found, {
    signal: progress.signal,
    onUpload: ({ localPath, sizeBytes }) =>
      progress.say(`uploading ${printable(localPath)} (${formatBytes(sizeBytes)})`),
  });
  const stdin =
    flags.stdin === true ? await client.files.upload(stdinStream(), { signal: progress.signal }) : undefined;
  return {
    cmd,
    image: flags.image,
    limits: { cpus: flags.cpus, ram_mb: flags.ram, storage_gb: flags.disk, timeout_ms: flags.timeout },
    queue_timeout_ms: flags.queueTimeout,
    env: flags.env,
    cwd: flags.cwd,
    files,
    outputs: flags.output,
    labels: flags.label,
    network: networkOf(flags),
    stdin_file_id: stdin?.id,
  };
}

const stdinStream = () => Readable.toWeb(process.stdin) as ReadableStream<Uint8Array>; // Node and DOM declare the same class twice

const HEAD_BYTES = 512;

async function headOf(path: string): Promise<string> {
  try {
    await using file = await open(path);
    const { buffer, bytesRead } = await file.read({ buffer: Buffer.alloc(HEAD_BYTES) });
    return buffer.toString('latin1', 0, bytesRead);
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    const problem =
      code === 'ENOENT' ? 'no such file' : code === 'EISDIR' ? 'it is a directory' : String(code ?? error);
    throw new CliError(`cannot run ${path}: ${problem}`, {
      hint: code === 'ENOENT' ? `to run a command of the image: fuse run -- ${path}` : 'name a program file',
      cause: error,
    });
  }
}

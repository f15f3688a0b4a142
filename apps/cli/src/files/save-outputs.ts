/** Downloads what a run left into a directory, and nowhere else. */
import { lstat, mkdir } from 'node:fs/promises';
import { dirname, join, sep } from 'node:path';
import type { FuseClient, RunOutput, RunResult } from '@fuse/sdk';
import { saveOutput } from '@fuse/sdk/node';
import { CliError } from '../cli-error.ts';
import { outputPaths } from './output-path.ts';

export interface SavedOutput {
  /** As the guest named it. */
  path: string;
  /** Where it is now. */
  file: string;
  size_bytes: number;
  sha256: string;
}

const PARALLEL_DOWNLOADS = 4;

/** Files only: the logs have been streamed. Each is whole and checked, or the command fails. */
export async function saveOutputs(
  client: FuseClient,
  result: RunResult,
  directory: string,
  signal: AbortSignal,
): Promise<SavedOutput[]> {
  const outputs = result.outputs.filter((output) => output.kind === 'file');
  const paths = outputPaths(outputs.map((output) => output.path));
  const saved: SavedOutput[] = [];
  const queue = outputs.map((output, at) => ({ output, at, file: join(directory, paths[at] ?? '_') }));
  const worker = async () => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
      await saveOne(client, result.id, next.output, { directory, file: next.file }, signal);
      const { path, size_bytes, sha256 } = next.output;
      saved[next.at] = { path, file: next.file, size_bytes, sha256 };
    }
  };
  await Promise.all(Array.from({ length: PARALLEL_DOWNLOADS }, worker));
  return saved;
}

async function saveOne(
  client: FuseClient,
  runId: string,
  output: RunOutput,
  { directory, file }: { directory: string; file: string },
  signal: AbortSignal,
): Promise<void> {
  await mkdir(directory, { recursive: true });
  await makeParents(directory, dirname(file));
  await saveOutput(client, runId, output, file, { signal });
}

/** Made one by one: a symbolic link on the way, left by whomever, would lead out of the directory. */
async function makeParents(directory: string, parent: string): Promise<void> {
  let path = directory;
  for (const name of parent.slice(join(directory).length).split(sep)) {
    if (name === '') continue;
    path = join(path, name);
    await mkdir(path).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
    if (!(await lstat(path)).isDirectory())
      throw new CliError(`${path} is in the way of an output: it is not a directory`, {
        hint: 'choose another --output-dir',
      });
  }
}

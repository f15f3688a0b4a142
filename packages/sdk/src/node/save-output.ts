import { createHash, randomUUID } from 'node:crypto';
import { open, rename, rm } from 'node:fs/promises';
import type { RunOutput } from '@fuse/contract';
import type { FuseClient } from '../client.ts';
import { FuseConnectionError } from '../errors.ts';
import { type CallOptions, damaged } from '../run-outputs.ts';

const ATTEMPTS = 3;

/**
 * Streams an output to `path` with flat memory. The file appears whole and checked (size and sha256), or not at all; whatever
 * stood at `path`, a symbolic link included, is replaced. A download that breaks off is started again.
 */
export async function saveOutput(
  client: FuseClient,
  runId: string,
  output: RunOutput,
  path: string,
  options: CallOptions = {},
): Promise<void> {
  const partial = `${path}.${randomUUID().slice(0, 8)}.partial`;
  try {
    for (let attempt = 1; ; attempt++) {
      try {
        await download(client, runId, output, partial, options);
        break;
      } catch (error) {
        if (attempt === ATTEMPTS || !(error instanceof FuseConnectionError)) throw error;
      }
    }
    await rename(partial, path);
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
}

async function download(
  client: FuseClient,
  runId: string,
  output: RunOutput,
  path: string,
  options: CallOptions,
): Promise<void> {
  const response = await client.runs.outputs.open(runId, output, options);
  await using file = await open(path, 'w', 0o644);
  const hash = createHash('sha256');
  let size = 0;
  for await (const chunk of chunksOf(response, output, options)) {
    size += chunk.length;
    if (size > output.size_bytes) throw damaged(output);
    hash.update(chunk);
    await file.writeFile(chunk);
  }
  if (size !== output.size_bytes || hash.digest('hex') !== output.sha256) throw damaged(output);
}

/** A body that breaks off is a lost connection, whatever the HTTP client calls it. */
async function* chunksOf(response: Response, output: RunOutput, options: CallOptions): AsyncGenerator<Uint8Array> {
  try {
    yield* response.body ?? [];
  } catch (cause) {
    if (options.signal?.aborted) throw options.signal.reason;
    throw new FuseConnectionError(`output ${JSON.stringify(output.path)}: the download broke off`, {
      cause,
      sent: true,
    });
  }
}

import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import type { UploadedFile } from '@fuse/contract';
import type { FuseClient } from '../client.ts';
import { IntegrityError } from '../errors.ts';
import type { CallOptions } from '../run-outputs.ts';

/** Streams a file of this machine up with flat memory; read anew if a connection is lost. What arrived is checked against what was read. */
export async function uploadFile(client: FuseClient, path: string, options: CallOptions = {}): Promise<UploadedFile> {
  let hash = createHash('sha256');
  async function* bytes(): AsyncGenerator<Uint8Array> {
    hash = createHash('sha256');
    for await (const chunk of createReadStream(path) as AsyncIterable<Uint8Array>) {
      hash.update(chunk);
      yield chunk;
    }
  }
  const uploaded = await client.files.upload(() => ReadableStream.from(bytes()), options);
  if (uploaded.sha256 !== hash.digest('hex'))
    throw new IntegrityError(`upload of ${path}: the bytes that arrived are not the ones that were read`);
  return uploaded;
}

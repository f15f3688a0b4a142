import { createReadStream } from 'node:fs';
import { Readable } from 'node:stream';
import type { UploadedFile } from '@fuse/contract';
import type { FuseClient } from '../client.ts';
import type { CallOptions } from '../run-outputs.ts';

/** Streams a file of this machine up with flat memory; read anew if a connection is lost. */
export function uploadFile(client: FuseClient, path: string, options: CallOptions = {}): Promise<UploadedFile> {
  return client.files.upload(
    () => Readable.toWeb(createReadStream(path)) as ReadableStream<Uint8Array>, // Node and DOM declare the same class twice
    options,
  );
}

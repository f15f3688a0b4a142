import { UploadedFile } from '@fuse/contract';
import type { CallOptions } from './run-outputs.ts';
import type { Transport } from './transport.ts';

/** A stream can be read once; give a function that opens it anew to have an upload survive a lost connection. */
export type FileContent = Uint8Array | Blob | ReadableStream<Uint8Array> | (() => ReadableStream<Uint8Array>);

export class Files {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Streams the content up; its id goes into `files[].file_id` and `stdin_file_id` of runs, until `expires_at`. */
  upload(content: FileContent, options: CallOptions = {}): Promise<UploadedFile> {
    return this.#transport.json(UploadedFile, {
      method: 'POST',
      path: '/v1/files',
      headers: { 'Content-Type': 'application/octet-stream' },
      body: typeof content === 'function' ? content : () => content,
      // A second copy of the bytes does no harm: it expires.
      repeat: content instanceof ReadableStream ? 'never' : 'freely',
      timeoutMs: null,
      ...options,
    });
  }
}

/** The files of a host's VMs. Queries are the guest's own (host-protocol/guest.ts). */
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { type FileOperation, type FileRequest, type FileResponse, fileOperations, TarIn } from '@fuse/contract';
import { GuestFileWritten } from '@fuse/host-protocol';
import type { HostTransport } from './host-transport.ts';

/** Until a stream's first byte: the guest has opened what it is about. */
const OPEN_MS = 60_000;
/** Walks a tree, copies one, searches one. */
const OPERATION_MS = 900_000;
/** From the last byte on: what was sent is flushed. */
const WRITTEN_MS = 300_000;

export interface GuestUpload {
  query: URLSearchParams;
  body: Readable;
  sizeBytes: number | undefined;
  signal: AbortSignal;
}

export class HostFiles {
  readonly #transport: HostTransport;

  constructor(transport: HostTransport) {
    this.#transport = transport;
  }

  /** Bytes of a file, a tar, or a watch's lines, unread; destroy it to stop. One that was cut fails. */
  open(
    vmId: string,
    { what, query, signal }: { what: 'file' | 'tar' | 'watch'; query: URLSearchParams; signal: AbortSignal },
  ): Promise<IncomingMessage> {
    const path = `/v1/vms/${vmId}/${what}?${query}`;
    return this.#transport.stream({ method: 'GET', path, timeoutMs: OPEN_MS, signal });
  }

  write(vmId: string, upload: GuestUpload): Promise<GuestFileWritten> {
    return this.#transport.json(uploadCall(`/v1/vms/${vmId}/file`, upload), GuestFileWritten);
  }

  extract(vmId: string, upload: GuestUpload): Promise<TarIn> {
    return this.#transport.json(uploadCall(`/v1/vms/${vmId}/tar`, upload), TarIn);
  }

  operate<Name extends FileOperation>(
    vmId: string,
    name: Name,
    { request, signal }: { request: FileRequest<Name>; signal?: AbortSignal | undefined },
  ): Promise<FileResponse<Name>> {
    const path = `/v1/vms/${vmId}/file/${name}`;
    const call = { method: 'POST', path, body: request, timeoutMs: OPERATION_MS, signal } as const;
    return this.#transport.json(call, fileOperations[name].response) as Promise<FileResponse<Name>>; // `Name`'s own, which indexing hides
  }
}

const uploadCall = (path: string, { query, body, sizeBytes, signal }: GuestUpload) =>
  ({
    method: 'PUT',
    path: `${path}?${query}`,
    body,
    ...(sizeBytes === undefined ? {} : { headers: { 'content-length': sizeBytes } }),
    timeoutMs: WRITTEN_MS,
    signal,
  }) as const;

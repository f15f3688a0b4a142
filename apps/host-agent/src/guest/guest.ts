/**
 * The host's side of one guest: a client of the protocol in host-protocol/guest.ts over a channel that reconnects by itself.
 * Everything a guest sends is bounded and parsed here, nothing of it is trusted further on.
 */

import type { Readable } from 'node:stream';
import type {
  ExecStdin,
  FileOperation,
  FileRequest,
  FileResponse,
  Healthcheck,
  ListProcesses,
  TarIn,
  TerminalSize,
} from '@fuse/contract';
import type {
  ExecSpec,
  GuestExecStatus,
  GuestFileWritten,
  GuestGlobRequest,
  GuestGlobResult,
  GuestHealth,
  GuestHealthcheck,
  GuestIdentity,
  GuestIdentityConfirmed,
  GuestSignal,
} from '@fuse/host-protocol';
import type { StdinOptions } from './exec-stdin.ts';
import type { FileHead } from './file-transfer.ts';

/** One duplex conversation with an exec; when the channel is cut, `frames` fails and a new `exec()` call goes on from an offset. */
export interface ExecConversation {
  /** Bytes of the exec's frame stream from the asked offset, whole to its exit frame; a cut stream is an error, never an end. */
  frames: AsyncIterable<Uint8Array>;
  /** Everything below `offset` is safe on the host. */
  ack(offset: number): void;
  /** Resolves when the guest's window took the bytes. */
  writeStdin(chunk: Uint8Array): Promise<void>;
  endStdin(): void;
  signal(name: string): void;
  close(): void;
}

/** One connection to a TCP server in the guest; each way ends for itself. */
export interface GuestTunnel {
  /** Of the server, to the end of its side; an error when it was cut. Once. */
  bytes(): AsyncIterable<Uint8Array>;
  /** After `bytes`: resolves once this side has ended too; rejects when it was cut before. */
  closed(): Promise<void>;
  /** Resolves when the guest has room for more; false once it takes none. */
  write(chunk: Uint8Array): Promise<boolean>;
  end(): void;
  abort(): void;
}

export interface Guest extends AsyncDisposable {
  /** Resolves once the channel is open: what is sent from then on, the time above all, is not held up by connecting. */
  ready(signal?: AbortSignal): Promise<void>;
  health(signal?: AbortSignal): Promise<GuestHealth>;
  identity(identity: GuestIdentity, signal?: AbortSignal): Promise<GuestIdentityConfirmed>;
  /** Starts (with `spec`) or goes on with (without) an exec. AppError not_found, conflict (offset already acked), invalid_argument with details.reason=exec_failed. */
  exec(id: string, options: { spec?: ExecSpec; offset?: number }, signal?: AbortSignal): Promise<ExecConversation>;
  execStatus(id: string, signal?: AbortSignal): Promise<GuestExecStatus>;
  killExec(id: string, signal?: AbortSignal): Promise<void>;
  /** Resolves once all of it is written; `conflict` with details.reason=stdin_closed, or with details.stdin_bytes when the offset is ahead. */
  writeStdin(id: string, options: StdinOptions, body: Readable | Uint8Array, signal?: AbortSignal): Promise<ExecStdin>;
  signalExec(id: string, order: GuestSignal, signal?: AbortSignal): Promise<void>;
  /** `conflict` when it has no terminal. */
  resizeExec(id: string, size: TerminalSize, signal?: AbortSignal): Promise<void>;
  processes(signal?: AbortSignal): Promise<ListProcesses>;
  signalProcess(pid: number, order: GuestSignal, signal?: AbortSignal): Promise<void>;
  writeFile(
    file: { path: string; mode?: string; uid?: number; gid?: number; sha256?: string },
    body: Readable | Uint8Array,
    signal?: AbortSignal,
  ): Promise<GuestFileWritten>;
  /** `not_found`, or `conflict` when it is no regular file. The stream fails when fewer bytes than `sizeBytes` come. */
  readFile(path: string, signal?: AbortSignal): Promise<{ sizeBytes: number; body: Readable }>;
  /** As the protocol's query says, which the guest checks. Body: to be read, or destroyed; it fails unless all of it came. */
  openFile(query: URLSearchParams, signal?: AbortSignal): Promise<{ head: FileHead; body: Readable }>;
  putFile(query: URLSearchParams, body: Readable | Uint8Array, signal?: AbortSignal): Promise<GuestFileWritten>;
  openTar(query: URLSearchParams, signal?: AbortSignal): Promise<Readable>;
  extractTar(query: URLSearchParams, body: Readable | Uint8Array, signal?: AbortSignal): Promise<TarIn>;
  /** Lines of WatchEvent. */
  watchFiles(query: URLSearchParams, signal?: AbortSignal): Promise<Readable>;
  fileOperation<Name extends FileOperation>(
    name: Name,
    request: FileRequest<Name>,
    signal?: AbortSignal,
  ): Promise<FileResponse<Name>>;
  /** `conflict` with details.reason=connection_refused when nothing listens there. */
  tunnel(port: number, signal?: AbortSignal): Promise<GuestTunnel>;
  putHealthcheck(healthcheck: Healthcheck, signal?: AbortSignal): Promise<void>;
  /** Undefined when it has none. */
  healthcheck(signal?: AbortSignal): Promise<GuestHealthcheck | undefined>;
  glob(request: GuestGlobRequest, signal?: AbortSignal): Promise<GuestGlobResult>;
  sync(signal?: AbortSignal): Promise<void>;
  /** Flushes and freezes the writable file system: what writes to it waits. It thaws by itself `deadlineMs` (at most 60 000) after the call. */
  freeze(deadlineMs: number, signal?: AbortSignal): Promise<void>;
  thaw(signal?: AbortSignal): Promise<void>;
}

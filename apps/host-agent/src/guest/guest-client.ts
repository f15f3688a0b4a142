/** The Guest of a VMM, over its channel. */

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
import {
  type ExecSpec,
  GuestExecStatus,
  type GuestFileWritten,
  type GuestGlobRequest,
  GuestGlobResult,
  GuestHealth,
  type GuestHealthcheck,
  type GuestIdentity,
  GuestIdentityConfirmed,
  type GuestSignal,
} from '@fuse/host-protocol';
import { type Logger, withDeadline } from '@fuse/runtime';
import type { Vmm } from '../vmm/driver.ts';
import { callJson } from './call.ts';
import { GuestChannel } from './channel.ts';
import { openExec } from './exec-conversation.ts';
import { type StdinOptions, writeExecStdin } from './exec-stdin.ts';
import { guestFileOperation } from './file-operations.ts';
import { type FileHead, type FileToWrite, openGuestFile, readGuestFile, writeGuestFile } from './file-transfer.ts';
import type { ExecConversation, Guest, GuestTunnel } from './guest.ts';
import { putHealthcheck, readHealthcheck } from './healthcheck.ts';
import { listProcesses, resizeExec, signalExec, signalProcess } from './processes.ts';
import { extractGuestTar, openGuestTar } from './tar-transfer.ts';
import { openTunnel } from './tunnel.ts';
import { watchGuestFiles } from './watch.ts';

/** Long enough for a cold boot on a busy machine. */
const FIRST_ANSWER_MS = 60_000;
const ANSWER_MS = 30_000;
/** Flushing a disk and walking a tree take as long as what is there. */
const LONG_ANSWER_MS = 120_000;

/**
 * Returns at once and connects in the background; calls wait for the channel, each within its own deadline. The channel reconnects by
 * itself while the VMM lives; once it exited every call fails with `vm_lost`. Disposing closes the channel and leaves the VMM alone.
 */
export function connectGuest(vmm: Vmm, options: { log: Logger }): Guest {
  return new GuestClient(new GuestChannel(vmm, options.log));
}

class GuestClient implements Guest {
  readonly #channel: GuestChannel;

  constructor(channel: GuestChannel) {
    this.#channel = channel;
  }

  async ready(signal?: AbortSignal): Promise<void> {
    await withDeadline(FIRST_ANSWER_MS, 'the guest channel', (inner) => this.#channel.session(inner), signal);
  }

  health(signal?: AbortSignal): Promise<GuestHealth> {
    return callJson(this.#channel, {
      method: 'GET',
      path: '/v1/health',
      what: 'a health check',
      schema: GuestHealth,
      deadlineMs: FIRST_ANSWER_MS,
      signal,
    });
  }

  identity(identity: GuestIdentity, signal?: AbortSignal): Promise<GuestIdentityConfirmed> {
    return callJson(this.#channel, {
      method: 'POST',
      path: '/v1/identity',
      what: 'its identity',
      body: identity,
      schema: GuestIdentityConfirmed,
      deadlineMs: FIRST_ANSWER_MS,
      signal,
    });
  }

  exec(id: string, options: { spec?: ExecSpec; offset?: number }, signal?: AbortSignal): Promise<ExecConversation> {
    return openExec(this.#channel, id, options, signal);
  }

  execStatus(id: string, signal?: AbortSignal): Promise<GuestExecStatus> {
    return callJson(this.#channel, {
      method: 'GET',
      path: `/v1/execs/${encodeURIComponent(id)}`,
      what: 'the state of an exec',
      schema: GuestExecStatus,
      deadlineMs: ANSWER_MS,
      signal,
    });
  }

  async killExec(id: string, signal?: AbortSignal): Promise<void> {
    await callJson(this.#channel, {
      method: 'DELETE',
      path: `/v1/execs/${encodeURIComponent(id)}`,
      what: 'the end of an exec',
      deadlineMs: ANSWER_MS,
      signal,
    });
  }

  writeStdin(id: string, options: StdinOptions, body: Readable | Uint8Array, signal?: AbortSignal): Promise<ExecStdin> {
    return writeExecStdin(this.#channel, id, options, body, signal);
  }

  signalExec(id: string, order: GuestSignal, signal?: AbortSignal): Promise<void> {
    return signalExec(this.#channel, id, order, signal);
  }

  resizeExec(id: string, size: TerminalSize, signal?: AbortSignal): Promise<void> {
    return resizeExec(this.#channel, id, size, signal);
  }

  processes(signal?: AbortSignal): Promise<ListProcesses> {
    return listProcesses(this.#channel, signal);
  }

  signalProcess(pid: number, order: GuestSignal, signal?: AbortSignal): Promise<void> {
    return signalProcess(this.#channel, pid, order, signal);
  }

  writeFile(file: FileToWrite, body: Readable | Uint8Array, signal?: AbortSignal): Promise<GuestFileWritten> {
    return writeGuestFile(this.#channel, file, body, signal);
  }

  readFile(path: string, signal?: AbortSignal): Promise<{ sizeBytes: number; body: Readable }> {
    return readGuestFile(this.#channel, path, signal);
  }

  openFile(query: URLSearchParams, signal?: AbortSignal): Promise<{ head: FileHead; body: Readable }> {
    return openGuestFile(this.#channel, query, signal);
  }

  putFile(query: URLSearchParams, body: Readable | Uint8Array, signal?: AbortSignal): Promise<GuestFileWritten> {
    return writeGuestFile(this.#channel, query, body, signal);
  }

  openTar(query: URLSearchParams, signal?: AbortSignal): Promise<Readable> {
    return openGuestTar(this.#channel, query, signal);
  }

  extractTar(query: URLSearchParams, body: Readable | Uint8Array, signal?: AbortSignal): Promise<TarIn> {
    return extractGuestTar(this.#channel, query, body, signal);
  }

  watchFiles(query: URLSearchParams, signal?: AbortSignal): Promise<Readable> {
    return watchGuestFiles(this.#channel, query, signal);
  }

  fileOperation<Name extends FileOperation>(
    name: Name,
    request: FileRequest<Name>,
    signal?: AbortSignal,
  ): Promise<FileResponse<Name>> {
    return guestFileOperation(this.#channel, name, request, signal);
  }

  tunnel(port: number, signal?: AbortSignal): Promise<GuestTunnel> {
    return openTunnel(this.#channel, port, signal);
  }

  putHealthcheck(healthcheck: Healthcheck, signal?: AbortSignal): Promise<void> {
    return putHealthcheck(this.#channel, healthcheck, signal);
  }

  healthcheck(signal?: AbortSignal): Promise<GuestHealthcheck | undefined> {
    return readHealthcheck(this.#channel, signal);
  }

  glob(request: GuestGlobRequest, signal?: AbortSignal): Promise<GuestGlobResult> {
    return callJson(this.#channel, {
      method: 'POST',
      path: '/v1/glob',
      what: 'a glob',
      body: request,
      schema: GuestGlobResult,
      deadlineMs: LONG_ANSWER_MS,
      signal,
    });
  }

  async sync(signal?: AbortSignal): Promise<void> {
    await callJson(this.#channel, {
      method: 'POST',
      path: '/v1/sync',
      what: 'a flush of its disk',
      deadlineMs: LONG_ANSWER_MS,
      signal,
    });
  }

  async freeze(deadlineMs: number, signal?: AbortSignal): Promise<void> {
    await callJson(this.#channel, {
      method: 'POST',
      path: '/v1/freeze',
      what: 'a freeze of its disk',
      body: { deadline_ms: deadlineMs },
      deadlineMs: LONG_ANSWER_MS,
      signal,
    });
  }

  async thaw(signal?: AbortSignal): Promise<void> {
    await callJson(this.#channel, {
      method: 'POST',
      path: '/v1/thaw',
      what: 'a thaw of its disk',
      deadlineMs: ANSWER_MS,
      signal,
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#channel[Symbol.asyncDispose]();
  }
}

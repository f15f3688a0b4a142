/** Where a command can be read: at its host, or, once its environment is gone, in the archive. */
import { AppError } from '@fuse/contract';
import type { HostExec, HostExecResult } from '@fuse/host-protocol';
import type { HostClient } from '../hosts/host-client.ts';
import type { LogStart } from '../hosts/host-execs.ts';
import { persistently } from '../hosts/host-retries.ts';

export interface LogOrder {
  from: LogStart;
  follow: boolean;
  signal: AbortSignal;
}

export interface OpenLog {
  /** Where its first byte is. */
  offset: number;
  /** Frames, with gaps and heartbeats in between. Rejects when it was cut. */
  body: AsyncIterable<Uint8Array>;
  destroy(): void;
}

/** Whatever it does not know is `not_found`. */
export interface ExecSource {
  /** In the order of their start. */
  list(signal: AbortSignal): Promise<HostExec[]>;
  /** At its end, or after `waitMs`, or earlier. */
  get(execId: string, waitMs: number, signal: AbortSignal): Promise<HostExec>;
  /** The head of each stream. */
  result(execId: string, limitBytes: number, signal: AbortSignal): Promise<HostExecResult>;
  log(execId: string, order: LogOrder): Promise<OpenLog>;
}

export class HostSource implements ExecSource {
  readonly #client: HostClient;
  readonly #vmId: string;
  readonly #retryMs: number;

  constructor(client: HostClient, vmId: string, retryMs: number) {
    this.#client = client;
    this.#vmId = vmId;
    this.#retryMs = retryMs;
  }

  list(signal: AbortSignal): Promise<HostExec[]> {
    return persistently(this.#retryMs, () => this.#client.execs.list(this.#vmId, signal), signal);
  }

  get(execId: string, waitMs: number, signal: AbortSignal): Promise<HostExec> {
    return persistently(this.#retryMs, () => this.#client.exec(this.#vmId, execId, waitMs, signal), signal);
  }

  result(execId: string, limitBytes: number, signal: AbortSignal): Promise<HostExecResult> {
    return persistently(this.#retryMs, () => this.#client.execResult(this.#vmId, execId, limitBytes, signal), signal);
  }

  async log(execId: string, order: LogOrder): Promise<OpenLog> {
    const { offset, body } = await persistently(
      this.#retryMs,
      () => this.#client.execs.log(this.#vmId, execId, order),
      order.signal,
    );
    return { offset, body, destroy: () => body.destroy() };
  }
}

export const isNotFound = (error: unknown): boolean => error instanceof AppError && error.code === 'not_found';

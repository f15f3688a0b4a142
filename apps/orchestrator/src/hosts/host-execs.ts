/** What a host can do with the commands and processes of its VMs beyond starting one and waiting for it. Every call may be repeated. */
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { ExecStdin, ListProcesses } from '@fuse/contract';
import { EXEC_PROTOCOL, type GuestSignal, HostExec, type StartExec } from '@fuse/host-protocol';
import { z } from 'zod';
import type { HostTransport } from './host-transport.ts';
import type { Upgraded } from './host-upgrade.ts';

const CALL_MS = 30_000;
/** Of stdin, once all of it was sent: the command may read the last of it late. */
const LAST_STDIN_MS = 2_147_483_647;

const Execs = z.object({ execs: z.array(HostExec) });

/** A byte of the log, or a frame at most so many bytes before its end. */
export type LogStart = { offset: number } | { tail: number };

export interface ConnectOptions {
  from: LogStart;
  /** It counts as a viewer of the exec's terminal, of this size. */
  size?: { rows: number; cols: number };
  signal?: AbortSignal | undefined;
}

export class HostExecs {
  readonly #transport: HostTransport;

  constructor(transport: HostTransport) {
    this.#transport = transport;
  }

  /** Started at most once per `execId`, however often it is called; `isNew`: by this call. */
  async start(
    vmId: string,
    execId: string,
    body: StartExec,
    signal?: AbortSignal,
  ): Promise<{ exec: HostExec; isNew: boolean }> {
    const path = `/v1/vms/${vmId}/execs/${execId}`;
    const answer = await this.#transport.answer({ method: 'PUT', path, body, timeoutMs: CALL_MS, signal }, HostExec);
    return { exec: answer.body, isNew: answer.status === 201 };
  }

  /** In the order of their start. Also of a VM that is paused or dead. */
  async list(vmId: string, signal?: AbortSignal): Promise<HostExec[]> {
    const path = `/v1/vms/${vmId}/execs`;
    return (await this.#transport.json({ method: 'GET', path, timeoutMs: CALL_MS, signal }, Execs)).execs;
  }

  /**
   * Frames (contract/frames.ts) with heartbeats in between; `follow` goes on to the exec's end. `offset`: where they begin. A stream that
   * ends without an exit frame was cut.
   */
  async log(
    vmId: string,
    execId: string,
    { from, follow, signal }: { from: LogStart; follow: boolean; signal?: AbortSignal | undefined },
  ): Promise<{ offset: number; body: IncomingMessage }> {
    const path = `/v1/vms/${vmId}/execs/${execId}/log?${startQuery(from)}${follow ? '&follow=1&heartbeat=1' : ''}`;
    const body = await this.#transport.stream({ method: 'GET', path, timeoutMs: CALL_MS, signal });
    const told = Number(body.headers['fuse-log-offset']);
    return { offset: Number.isSafeInteger(told) ? told : 'offset' in from ? from.offset : 0, body };
  }

  /** Resolves once the command has taken all of `body`, which takes as long as the command does. Ahead of what it has: `conflict`, details.stdin_bytes. */
  writeStdin(
    vmId: string,
    execId: string,
    { body, offset, end, signal }: { body: Readable; offset?: number | undefined; end: boolean; signal: AbortSignal },
  ): Promise<ExecStdin> {
    const query = new URLSearchParams({
      ...(offset === undefined ? {} : { offset: String(offset) }),
      ...(end ? { end: '1' } : {}),
    });
    const path = `/v1/vms/${vmId}/execs/${execId}/stdin?${query}`;
    return this.#transport.json({ method: 'POST', path, body, timeoutMs: LAST_STDIN_MS, signal }, ExecStdin);
  }

  signal(vmId: string, execId: string, body: GuestSignal, signal?: AbortSignal): Promise<void> {
    const path = `/v1/vms/${vmId}/execs/${execId}/signal`;
    return this.#transport.nothing({ method: 'POST', path, body, timeoutMs: CALL_MS, signal });
  }

  /** Frames both ways: first the host's `open`. The signal destroys the connection. */
  connect(vmId: string, execId: string, { from, size, signal }: ConnectOptions): Promise<Upgraded> {
    const viewer = size === undefined ? '' : `&rows=${size.rows}&cols=${size.cols}`;
    const path = `/v1/vms/${vmId}/execs/${execId}/connect?${startQuery(from)}${viewer}`;
    return this.#transport.upgrade({ method: 'GET', path, timeoutMs: CALL_MS, signal }, EXEC_PROTOCOL);
  }

  processes(vmId: string, signal?: AbortSignal): Promise<ListProcesses> {
    const path = `/v1/vms/${vmId}/processes`;
    return this.#transport.json({ method: 'GET', path, timeoutMs: CALL_MS, signal }, ListProcesses);
  }

  signalProcess(vmId: string, pid: number, body: GuestSignal, signal?: AbortSignal): Promise<void> {
    const path = `/v1/vms/${vmId}/processes/${pid}/signal`;
    return this.#transport.nothing({ method: 'POST', path, body, timeoutMs: CALL_MS, signal });
  }
}

const startQuery = (from: LogStart): string => ('offset' in from ? `offset=${from.offset}` : `tail=${from.tail}`);

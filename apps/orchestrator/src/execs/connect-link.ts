/**
 * A client's link to an exec, whatever becomes of the connection to its host agent meanwhile. When that breaks and the exec is still there it is opened again: output
 * goes on at its offset, stdin at the byte that the command has not got. With several who type at once, who had typed how much at that moment is not known: then
 * something may be missing, nothing comes twice.
 * It ends for good when the exec has (`exit`), when its environment is paused or destroyed, and with `vm_lost` when the exec's end will never be known.
 */
import {
  AppError,
  type ExecOpened,
  encodeFrame,
  FRAME_HEADER_BYTES,
  type Frame,
  frameType,
  type TerminalSize,
  webSocketClose,
} from '@fuse/contract';
import { sleep } from '@fuse/runtime';
import { z } from 'zod';
import type { EnvironmentRow } from '../db/schema.ts';
import type { EnvironmentContext } from '../environments/environment-context.ts';
import { environmentByUid } from '../environments/environment-store.ts';
import type { LogStart } from '../hosts/host-execs.ts';
import { isHostUnreachable } from '../hosts/host-transport.ts';
import { EndedBy } from '../http/endings.ts';
import { writeWithRoom } from '../http/write-with-room.ts';
import { RecentStdin } from './connect-stdin.ts';
import { ConnectionCut, connectToHost, type HostConnection, jsonOf } from './host-connection.ts';

/** How long a host agent may be away. */
const HOST_AWAY_MS = 60_000;
const LOOK_AGAIN_MS = 250;
/** More than what is ever on its way between here and the command. */
const KEPT_STDIN_BYTES = 1_048_576;

const Gap = z.object({ from: z.number().int(), to: z.number().int().nonnegative() });

export interface LinkOptions {
  execId: string;
  from: LogStart;
  /** As a viewer of its terminal. */
  size?: TerminalSize | undefined;
  signal: AbortSignal;
}

export class ExecLink {
  readonly #context: EnvironmentContext;
  readonly #row: EnvironmentRow;
  readonly #execId: string;
  readonly #closed = new AbortController();
  readonly #signal: AbortSignal;
  readonly #stdin = new RecentStdin(KEPT_STDIN_BYTES);
  #stdinEnded = false;
  #size: TerminalSize | undefined;
  #connection: HostConnection;
  #offset: number;
  /** Of stdin that others had sent before this link. */
  readonly #stdinBase: number;
  /** Resolved while what is sent may be written to the connection that there is. */
  #writable: Promise<void> = Promise.resolve();

  private constructor(context: EnvironmentContext, row: EnvironmentRow, options: LinkOptions, first: HostConnection) {
    this.#context = context;
    this.#row = row;
    this.#execId = options.execId;
    this.#size = options.size;
    this.#signal = AbortSignal.any([options.signal, this.#closed.signal]);
    this.#connection = first;
    this.#offset = first.opened.offset;
    this.#stdinBase = first.opened.stdin_bytes;
    this.#signal.addEventListener('abort', () => this.#connection.socket.destroy(), { once: true });
  }

  /** Rejects with the host's refusal. */
  static async open(context: EnvironmentContext, row: EnvironmentRow, options: LinkOptions): Promise<ExecLink> {
    const giveUpAt = performance.now() + context.hostRetryMs;
    for (;;) {
      try {
        const client = await context.hosts.client(row.host_id);
        const { execId, from, size, signal } = options;
        const first = await connectToHost(client, row.vm_id, execId, {
          from,
          ...(size === undefined ? {} : { size }),
          signal,
        });
        return new ExecLink(context, row, options, first);
      } catch (error) {
        if (!isPassing(error) || performance.now() > giveUpAt) throw asAppError(error);
        await sleep(LOOK_AGAIN_MS, options.signal);
      }
    }
  }

  get opened(): ExecOpened {
    return this.#connection.opened;
  }

  /** stdout, stderr, gaps and heartbeats, then the exit. Rejects when none will come. */
  async *frames(): AsyncGenerator<Frame> {
    for (;;) {
      const openedAt = performance.now();
      for await (const frame of this.#connection.frames) {
        if (!this.#count(frame)) continue;
        yield frame;
        if (frame.type === frameType.exit) return;
      }
      this.#signal.throwIfAborted();
      // One that is cut again and again is not opened in a busy loop.
      if (performance.now() - openedAt < LOOK_AGAIN_MS) await sleep(LOOK_AGAIN_MS, this.#signal);
      await this.#reconnect();
    }
  }

  /** Whether it is one for the client. */
  #count(frame: Frame): boolean {
    const { type, payload } = frame;
    if (type === frameType.stdout || type === frameType.stderr || type === frameType.exit)
      this.#offset += encodedLength(payload);
    else if (type === frameType.gap) this.#offset = Gap.parse(jsonOf(frame)).to;
    else return type === frameType.heartbeat;
    return true;
  }

  async sendStdin(bytes: Uint8Array): Promise<void> {
    await this.#writable;
    this.#stdin.push(bytes);
    await this.#write(frameType.stdin, bytes);
  }

  async endStdin(): Promise<void> {
    await this.#writable;
    this.#stdinEnded = true;
    await this.#write(frameType.stdinEnd, new Uint8Array());
  }

  async resize(size: TerminalSize): Promise<void> {
    this.#size = size;
    await this.#write(frameType.resize, Buffer.from(JSON.stringify(size)));
  }

  async signal(request: { signal: string; tree?: boolean | undefined }): Promise<void> {
    await this.#writable;
    await this.#write(frameType.signal, Buffer.from(JSON.stringify(request)));
  }

  /** What breaks is mended by whoever reads `frames`. */
  async #write(type: number, payload: Uint8Array): Promise<void> {
    await writeWithRoom(this.#connection.socket, encodeFrame(type, payload)).catch(() => {});
  }

  async #reconnect(): Promise<void> {
    const giveUpAt = performance.now() + HOST_AWAY_MS;
    let settle: (resent: Promise<void>) => void = () => {};
    this.#writable = new Promise<void>((resolve) => {
      settle = resolve;
    });
    this.#writable.catch(() => {}); // told by `frames`
    try {
      for (;;) {
        try {
          this.#connection = await this.#openAgain();
          // Beside the reading: a command may need its output taken before it takes more.
          settle(this.#resend(this.#connection));
          return;
        } catch (error) {
          // A conflict: it is just being paused, and the row says so the next time.
          const isConflict = error instanceof AppError && error.code === 'conflict';
          if (!(isPassing(error) || isConflict) || performance.now() > giveUpAt) throw asAppError(error);
          await sleep(LOOK_AGAIN_MS, this.#signal);
        }
      }
    } catch (error) {
      settle(Promise.reject(error));
      throw error;
    }
  }

  async #openAgain(): Promise<HostConnection> {
    const row = await environmentByUid(this.#context.db.query, this.#row.uid);
    requireRunning(row);
    const client = await this.#context.hosts.client(this.#row.host_id);
    const exec = await client.exec(this.#row.vm_id, this.#execId, 0, this.#signal);
    if (exec.state === 'lost') throw new AppError('vm_lost', exec.error ?? 'the end of the command is not known');
    return connectToHost(client, this.#row.vm_id, this.#execId, {
      from: { offset: this.#offset },
      ...(this.#size === undefined ? {} : { size: this.#size }),
      signal: this.#signal,
    });
  }

  async #resend({ socket, opened }: HostConnection): Promise<void> {
    const taken = Math.min(Math.max(0, opened.stdin_bytes - this.#stdinBase), this.#stdin.sent);
    const missing = this.#stdin.since(taken);
    if (missing === undefined) {
      const lost = new AppError('unavailable', 'input was lost with the connection to the host');
      this.#closed.abort(lost);
      throw lost;
    }
    for (const piece of missing) await writeWithRoom(socket, encodeFrame(frameType.stdin, piece)).catch(() => {});
    if (this.#stdinEnded && !opened.stdin_closed && opened.tty === undefined)
      await this.#write(frameType.stdinEnd, new Uint8Array());
  }

  close(): void {
    this.#closed.abort(new Error('the link was closed'));
  }
}

const encodedLength = (payload: Uint8Array): number => FRAME_HEADER_BYTES + payload.length;

/** The host agent restarts, or the state that refuses is about to change. */
const isPassing = (error: unknown): boolean =>
  error instanceof ConnectionCut || isHostUnreachable(error) || error instanceof StateChanges;

class StateChanges extends Error {
  override readonly name = 'StateChanges';
}

function asAppError(error: unknown): unknown {
  if (error instanceof ConnectionCut || error instanceof StateChanges)
    return new AppError('unavailable', 'the host cannot be reached', { cause: error, retryAfterSeconds: 1 });
  if (error instanceof AppError && error.code === 'not_found')
    return new AppError('vm_lost', error.message, { cause: error });
  return error;
}

function requireRunning(row: EnvironmentRow | undefined): void {
  const state = row?.state ?? 'destroyed';
  switch (state) {
    case 'running':
    case 'draining':
      return;
    case 'resuming':
    case 'provisioning':
      throw new StateChanges(state);
    case 'failed':
      throw new AppError('vm_lost', row?.error ?? 'the vm was lost');
    case 'pausing':
    case 'paused':
      throw new EndedBy({ code: webSocketClose.gone, reason: 'paused' });
    case 'destroying':
    case 'destroyed':
      throw new EndedBy({ code: webSocketClose.gone, reason: 'destroyed' });
  }
}

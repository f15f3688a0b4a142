import {
  DEFAULT_SCROLLBACK_BYTES,
  DEFAULT_TERMINAL_SIZE,
  ExecExit,
  encodeFrame,
  FRAME_HEADER_BYTES,
  frameType,
  MAX_SCROLLBACK_BYTES,
  type TerminalSize,
} from '@fuse/contract';
import { z } from 'zod';
import { CutStreamError, FuseError } from './errors.ts';
import { LogGap, parsePayload } from './exec-log.ts';
import { streamOf } from './file-reading.ts';
import { persist } from './persist.ts';
import { withRetries } from './retry.ts';
import type { CallOptions } from './run-outputs.ts';
import { STALL_MS } from './sleep.ts';
import { connectTerminal, type TerminalConnection, type TerminalRequest } from './terminal-connection.ts';
import { QueryFilter } from './terminal-queries.ts';
import type { Transport } from './transport.ts';

const PIECE_BYTES = 65_536;

interface Start {
  options: AttachOptions;
  request: TerminalRequest;
  closing: AbortController;
  first: TerminalConnection;
}

export interface AttachOptions extends CallOptions {
  /** Begun when there is none of that id. Default: a fresh one. */
  session?: string;
  rows?: number;
  cols?: number;
  /** Of a session that is begun. Default: a login shell. */
  cmd?: string[];
  user?: string;
  cwd?: string;
  /** Of what it wrote before; default 256 KiB. */
  scrollbackBytes?: number;
  /** How long to try to come back after a lost connection. Default 60 s. */
  patienceMs?: number;
  /** Where somebody else asks for tickets: one for each connection. */
  ticket?: () => Promise<string>;
  /** The connection was lost, or is there again. */
  onConnection?: (state: 'lost' | 'restored') => void;
  /** Output that is not kept any more. */
  onGap?: (gap: { from: number; to: number }) => void;
}

const TerminalExit = ExecExit.partial().extend({ exit_code: z.number().int() });
export type TerminalExit = z.infer<typeof TerminalExit>;

/**
 * One view of a terminal session. The session is an exec with a terminal and outlives it: a lost connection is made again to the same one, and its output
 * goes on without gap or repeat (of the last 4 MiB). What was typed and on its way when the connection broke may be lost; it is never typed twice.
 */
export class Terminal implements AsyncDisposable {
  readonly session: string;
  readonly environmentId: string;
  /**
   * Its end is the session's, or that of `close`. It fails when the session is lost. In the scrollback that comes first nothing asks the terminal a question: those were
   * answered long ago.
   */
  readonly output: ReadableStream<Uint8Array>;
  /** Known once `output` has been read to its end. */
  readonly exit: Promise<TerminalExit>;
  readonly #transport: Transport;
  readonly #options: AttachOptions;
  readonly #request: TerminalRequest;
  readonly #closing: AbortController;
  /** Undefined while it is being made again. */
  #connection: TerminalConnection | undefined;
  #next: number;
  /** Up to here it is scrollback. */
  readonly #replayEnd: number;
  readonly #queries = new QueryFilter();
  #onConnected: (() => void) | undefined;
  #lastSent: Promise<void> = Promise.resolve();
  #resolveExit!: (exit: TerminalExit) => void; // both by the promise's constructor
  #rejectExit!: (cause: unknown) => void;

  private constructor(transport: Transport, start: Start) {
    this.#transport = transport;
    this.#options = start.options;
    this.#request = start.request;
    this.#closing = start.closing;
    this.#connection = start.first;
    this.#next = start.first.opened.offset;
    this.#replayEnd = start.first.opened.log_end ?? this.#next;
    this.session = start.request.session;
    this.environmentId = start.request.environmentId;
    this.exit = new Promise((resolve, reject) => {
      this.#resolveExit = resolve;
      this.#rejectExit = reject;
    });
    this.exit.catch(() => {}); // whoever asks hears of it
    this.output = streamOf(this.#output());
  }

  static async attach(transport: Transport, environmentId: string, options: AttachOptions = {}): Promise<Terminal> {
    const { rows = DEFAULT_TERMINAL_SIZE.rows, cols = DEFAULT_TERMINAL_SIZE.cols, signal } = options;
    const request: TerminalRequest = {
      environmentId,
      session: options.session ?? crypto.randomUUID(),
      size: { rows, cols },
      cmd: options.cmd,
      user: options.user,
      cwd: options.cwd,
      scrollbackBytes: options.scrollbackBytes ?? DEFAULT_SCROLLBACK_BYTES,
      takeTicket: options.ticket,
    };
    const closing = new AbortController();
    const onAbort = () => closing.abort(signal?.reason);
    if (signal?.aborted) onAbort();
    signal?.addEventListener('abort', onAbort, { once: true });
    try {
      // Its id is chosen: begun once, however often it is asked for.
      const policy = { ...transport.config, repeat: 'freely', signal } as const;
      const first = await withRetries(policy, () => connectTerminal(transport, request, closing.signal, STALL_MS));
      const terminal = new Terminal(transport, { options, request, closing, first });
      void terminal.exit.catch(() => {}).finally(() => signal?.removeEventListener('abort', onAbort));
      return terminal;
    } catch (error) {
      signal?.removeEventListener('abort', onAbort);
      throw signal?.aborted ? signal.reason : error;
    }
  }

  /** What it had at the moment; the smallest of all that watch it. */
  get size(): TerminalSize {
    return this.#request.size;
  }

  /** Resolves when it is on its way; while the connection is being made again it waits. */
  write(data: string | Uint8Array): Promise<void> {
    const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data.slice();
    return this.#inTurn(async () => {
      for (let at = 0; at < bytes.length; at += PIECE_BYTES)
        await this.#send(encodeFrame(frameType.stdin, bytes.subarray(at, at + PIECE_BYTES)));
    });
  }

  /** The terminal's own size is the smallest of all that watch it. Kept across lost connections. */
  resize(rows: number, cols: number): Promise<void> {
    this.#request.size = { rows, cols };
    return this.#inTurn(() => this.#send(encodeFrame(frameType.resize, jsonBytes(this.#request.size))));
  }

  /** Leaves; the session lives on. */
  close(): Promise<void> {
    this.#closing.abort(new DetachedError(this.session));
    this.#onConnected?.();
    return Promise.resolve();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    const mine = this.#lastSent.then(work);
    this.#lastSent = mine.catch(() => {}); // told to whoever wrote it
    return mine;
  }

  async #send(frame: Uint8Array): Promise<void> {
    while (this.#connection === undefined) {
      this.#closing.signal.throwIfAborted();
      await new Promise<void>((resolve) => {
        this.#onConnected = resolve;
      });
    }
    this.#closing.signal.throwIfAborted();
    // A connection that breaks here has perhaps carried it: it is not sent again.
    await this.#connection.writer.write(frame).catch(() => {});
  }

  async *#output(): AsyncGenerator<Uint8Array, void> {
    try {
      yield* persist((signal) => this.#read(signal), {
        random: this.#transport.config.random,
        signal: this.#closing.signal,
        patienceMs: this.#options.patienceMs,
        onCut: (cause) => new CutStreamError(this.session, String(this.#next), cause),
      });
    } catch (error) {
      this.#rejectExit(error);
      if (!(error instanceof DetachedError)) throw error;
    } finally {
      const over = new DetachedError(this.session);
      this.#rejectExit(over);
      this.#closing.abort(over);
      this.#onConnected?.();
    }
  }

  async *#read(signal: AbortSignal): AsyncGenerator<Uint8Array, boolean> {
    const connection = this.#connection ?? (await this.#reconnect(signal));
    let at = connection.opened.offset;
    let ended = false;
    try {
      for await (const { type, payload } of connection.frames) {
        if (type === frameType.heartbeat) continue;
        if (type === frameType.gap) {
          at = parsePayload(LogGap, payload).to;
          continue;
        }
        const end = at + FRAME_HEADER_BYTES + payload.length;
        if (at > this.#next) this.#options.onGap?.({ from: this.#next, to: at });
        at = end;
        if (end <= this.#next) continue;
        this.#next = end;
        if (type === frameType.stdout || type === frameType.stderr) yield* this.#shown(payload, end);
        else if (type === frameType.exit) {
          ended = true;
          this.#resolveExit(parsePayload(TerminalExit, payload));
          return true;
        }
      }
    } finally {
      this.#connection = undefined;
      connection.close();
      if (!ended && !signal.aborted) this.#options.onConnection?.('lost');
    }
    return false;
  }

  *#shown(payload: Uint8Array, end: number): Generator<Uint8Array> {
    if (end > this.#replayEnd) {
      const held = this.#queries.end();
      if (held.length > 0) yield held;
      yield payload;
      return;
    }
    const shown = this.#queries.push(payload);
    if (shown.length > 0) yield shown;
  }

  async #reconnect(signal: AbortSignal): Promise<TerminalConnection> {
    const request = { ...this.#request, scrollbackBytes: MAX_SCROLLBACK_BYTES };
    const connection = await connectTerminal(this.#transport, request, signal, STALL_MS);
    this.#connection = connection;
    this.#options.onConnection?.('restored');
    this.#onConnected?.();
    return connection;
  }
}

class DetachedError extends FuseError {
  constructor(session: string) {
    super(`detached from session ${session}`);
  }
}

const jsonBytes = (value: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(value));

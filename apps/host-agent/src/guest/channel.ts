/**
 * One HTTP/2 session with a guest after the other: connect, read the greeting, serve until the session is cut, connect again, for as
 * long as the VMM lives. Callers wait for a session; when the VMM has exited they are told `vm_lost`, and nothing connects any more.
 */
import { type ClientHttp2Session, connect } from 'node:http2';
import type { Duplex } from 'node:stream';
import { AppError } from '@fuse/contract';
import { type Logger, sleep } from '@fuse/runtime';
import type { Vmm } from '../vmm/driver.ts';
import { readGreeting } from './greeting.ts';
import { JsStream } from './js-stream.ts';

/**
 * A machine restored from a snapshot of one whose host was connected must notice the host's absence before it greets, and a connection made
 * before it did is in vain. So the first tries are short: an idle machine notices in some 30 ms, and each try leaves it longer.
 */
const FIRST_GREETING_MS = 40;
const MAX_GREETING_MS = 8_000;
/** The guest needs a moment to notice that the host went away. */
const ABSENCE_MS = 20;
const MAX_ABSENCE_MS = 1_000;
const STREAM_WINDOW_BYTES = 1_048_576;
/** Each frame that the guest's agent sends costs it two switches, whatever its size. */
const FRAME_BYTES = 65_536;
const SESSION_WINDOW_BYTES = 16_777_216;
/** Node's own accounting of what a session holds, in MB: every stream's window full. */
const SESSION_MEMORY_MB = 320;
const PONG_MS = 5_000;
/** How long after a cut the VMM's exit may still become known. */
const EXIT_NOTICE_MS = 1_000;

export class GuestChannel implements AsyncDisposable {
  readonly #vmm: Vmm;
  readonly #log: Logger;
  readonly #closing = new AbortController();
  readonly #running: Promise<void>;
  readonly #waiters = new Set<{ resolve: (session: ClientHttp2Session) => void; reject: (error: Error) => void }>();
  #session: ClientHttp2Session | undefined;
  #end: AppError | undefined;

  constructor(vmm: Vmm, log: Logger) {
    this.#vmm = vmm;
    this.#log = log;
    void vmm.exited.then((exit) => {
      const how = exit.signal === null ? '' : ` (${exit.signal})`;
      this.#stop(new AppError('vm_lost', `the VM has ended${how}`));
    });
    this.#running = this.#run();
  }

  /** A session that was alive a moment ago. */
  async session(signal: AbortSignal): Promise<ClientHttp2Session> {
    signal.throwIfAborted();
    if (this.#end !== undefined) throw this.#end;
    if (this.#session !== undefined && !this.#session.closed) return this.#session;
    return new Promise((resolve, reject) => {
      const waiter = {
        resolve: (session: ClientHttp2Session) => {
          leave();
          resolve(session);
        },
        reject: (error: Error) => {
          leave();
          reject(error);
        },
      };
      const onAbort = () => waiter.reject(signal.reason);
      const leave = () => {
        this.#waiters.delete(waiter);
        signal.removeEventListener('abort', onAbort);
      };
      this.#waiters.add(waiter);
      signal.addEventListener('abort', onAbort, { once: true });
    });
  }

  /** What the failure of a request means: a cut is `vm_lost` when the VMM is gone or goes within moments, otherwise `unavailable`. */
  async meaning(what: string, error: unknown): Promise<AppError> {
    if (error instanceof AppError) return error;
    const sessionLives = this.#session !== undefined && !this.#session.closed && !this.#session.destroyed;
    if (sessionLives) return new AppError('unavailable', `the guest broke off ${what}`, { cause: error });
    if (this.#end === undefined) await Promise.race([this.#vmm.exited, sleep(EXIT_NOTICE_MS)]);
    return this.#end ?? new AppError('unavailable', `the guest channel was cut during ${what}`, { cause: error });
  }

  /** A request went unanswered: a session that does not answer a ping either is given up. */
  suspect(): void {
    const session = this.#session;
    if (session === undefined || session.destroyed) return;
    const silent = new AppError('unavailable', 'the guest does not answer');
    const timer = setTimeout(() => session.destroy(silent), PONG_MS).unref();
    session.ping(() => clearTimeout(timer));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop(new AppError('unavailable', 'the guest channel was closed'));
    await this.#running;
  }

  #stop(end: AppError): void {
    this.#end ??= end;
    this.#closing.abort(end);
    this.#session?.destroy(this.#end);
    for (const waiter of this.#waiters) waiter.reject(this.#end);
  }

  async #run(): Promise<void> {
    let failures = 0;
    while (!this.#closing.signal.aborted) {
      try {
        const socket = await this.#greetedSocket(Math.min(FIRST_GREETING_MS * 2 ** failures, MAX_GREETING_MS));
        failures = 0;
        await this.#serve(socket);
      } catch (error) {
        if (this.#closing.signal.aborted) return;
        this.#log.debug({ err: error, pid: this.#vmm.pid }, 'guest channel not open');
        failures += 1;
      }
      const absenceMs = ABSENCE_MS * 2 ** Math.max(0, failures - 1);
      await sleep(Math.min(absenceMs, MAX_ABSENCE_MS), this.#closing.signal).catch(() => {});
    }
  }

  async #greetedSocket(greetingMs: number): Promise<Duplex> {
    const socket = await this.#vmm.openGuestChannel(this.#closing.signal);
    const onClosing = () => socket.destroy();
    this.#closing.signal.addEventListener('abort', onClosing, { once: true });
    socket.on('error', () => {});
    try {
      await readGreeting(socket, greetingMs);
      return socket;
    } catch (error) {
      socket.destroy();
      throw error;
    } finally {
      this.#closing.signal.removeEventListener('abort', onClosing);
    }
  }

  /** Resolves when the session is over. */
  async #serve(socket: Duplex): Promise<void> {
    // It is only ever destroyed with an error: without one Node ends its streams as if they were whole.
    const session = connect('http://guest', {
      createConnection: () => new JsStream(socket),
      settings: { initialWindowSize: STREAM_WINDOW_BYTES, maxFrameSize: FRAME_BYTES, enablePush: false },
      maxSessionMemory: SESSION_MEMORY_MB,
    });
    session.on('error', (error) => this.#log.debug({ err: error, pid: this.#vmm.pid }, 'guest channel failed'));
    const closed = new Promise<void>((resolve) => session.once('close', resolve));
    session.once('connect', () => {
      if (session.destroyed) return; // it was lost before it was told so
      if (this.#end !== undefined) return session.destroy(this.#end);
      session.setLocalWindowSize(SESSION_WINDOW_BYTES);
      this.#session = session;
      for (const waiter of this.#waiters) waiter.resolve(session);
    });
    if (this.#end !== undefined) session.destroy(this.#end);
    // After GOAWAY a session takes no new requests, but is not closed before its streams are.
    session.once('goaway', () => session.destroy(new AppError('unavailable', 'the guest closes the channel')));
    await closed;
    if (this.#session === session) this.#session = undefined;
    if (!socket.destroyed) socket.destroy();
  }
}

/**
 * stdin of a running command, exactly once: pieces of at most 4 MiB, each under its offset, so that one whose answer was lost may be sent again. What is
 * written while one is on its way goes with the next; when that is much, the next one is on its way too, so that the command never waits for us. Over 4 MiB
 * of what waits the writer waits, as on a full pipe.
 */
import type { ExecStdin } from '@fuse/contract';
import { FuseApiError, FuseConnectionError, FuseError } from './errors.ts';
import type { StdinPiece } from './exec-calls.ts';
import { GOOD_CONNECTION_MS, PATIENCE_MS } from './persist.ts';
import { backoffMs, isPassing, type Random } from './retry.ts';
import { STALL_MS, sleep } from './sleep.ts';

const PIECE_BYTES = 4_194_304;
/** From so much on it goes beside the piece before it. */
const MUCH_BYTES = 1_048_576;
const MAX_FLYING = 2;

export interface StdinOptions {
  /** What the command has already; undefined: to be asked for. */
  offset: number | undefined;
  random: Random;
  signal: AbortSignal;
  patienceMs?: number | undefined;
  stallMs?: number;
}

export type PostStdin = (piece: StdinPiece, signal: AbortSignal) => Promise<ExecStdin>;

export function execStdin(post: PostStdin, options: StdinOptions): WritableStream<Uint8Array> {
  const sender = new StdinSender(post, options);
  return new WritableStream<Uint8Array>(
    {
      start: (controller) => {
        sender.onFailed = (error) => controller.error(error);
      },
      write: (bytes) => sender.write(bytes),
      close: () => sender.end(),
      abort: () => sender.giveUp(),
    },
    new CountQueuingStrategy({ highWaterMark: 1 }),
  );
}

class StdinSender {
  onFailed: (error: unknown) => void = () => {};
  readonly #post: PostStdin;
  readonly #options: StdinOptions;
  #offset: number | undefined;
  #waiting: Uint8Array[] = [];
  #waitingBytes = 0;
  #ending = false;
  #ended = false;
  #sending: Promise<void> | undefined;
  #room = Promise.resolve();
  #gotRoom = () => {};

  constructor(post: PostStdin, options: StdinOptions) {
    this.#post = post;
    this.#options = options;
    this.#offset = options.offset;
  }

  async write(bytes: Uint8Array): Promise<void> {
    if (bytes.length === 0) return;
    // The caller may use its array again once this has resolved.
    this.#waiting.push(bytes.slice());
    this.#waitingBytes += bytes.length;
    if (this.#waitingBytes > PIECE_BYTES)
      this.#room = new Promise((resolve) => {
        this.#gotRoom = resolve;
      });
    this.#start();
    await this.#room;
  }

  async end(): Promise<void> {
    this.#ending = true;
    this.#start();
    await this.#sending;
    // The piece that was on its way may have been the last one.
    this.#start();
    await this.#sending;
  }

  /** What waits is dropped; the command sees its end. */
  async giveUp(): Promise<void> {
    this.#waiting = [];
    this.#waitingBytes = 0;
    this.#gotRoom();
    await this.end().catch(() => {});
  }

  #start(): void {
    this.#sending ??= this.#send();
    this.#sending.catch(() => {}); // told by the stream
  }

  async #send(): Promise<void> {
    try {
      const flying: Promise<void>[] = [];
      for (;;) {
        const ends = this.#ending && this.#waitingBytes <= PIECE_BYTES;
        const wanted = this.#waitingBytes > 0 || (this.#ending && !this.#ended);
        const room = ends || this.#waitingBytes < MUCH_BYTES ? 1 : MAX_FLYING;
        if (!wanted && flying.length === 0) break;
        if (!wanted || flying.length >= room) {
          await flying.shift();
          continue;
        }
        this.#offset ??= (await this.#deliver({ bytes: new Uint8Array(), offset: undefined, end: false })).stdin_bytes;
        const sent = this.#sendPiece(this.#take(), this.#offset, ends);
        sent.catch(() => {}); // told when its turn comes
        flying.push(sent);
      }
      this.#sending = undefined;
    } catch (error) {
      this.#gotRoom();
      this.onFailed(error);
      throw error;
    }
  }

  async #sendPiece(bytes: Uint8Array, offset: number, end: boolean): Promise<void> {
    const next = offset + bytes.length;
    this.#offset = next;
    this.#ended = end;
    const { stdin_bytes } = await this.#deliver({ bytes, offset, end });
    if (stdin_bytes < next) throw new FuseError(`stdin: ${stdin_bytes} bytes arrived of ${next}`);
  }

  #take(): Uint8Array {
    const out = new Uint8Array(Math.min(PIECE_BYTES, this.#waitingBytes));
    for (let at = 0; at < out.length; ) {
      const first = this.#waiting[0] as Uint8Array; // they are #waitingBytes together
      const part = first.subarray(0, out.length - at);
      out.set(part, at);
      at += part.length;
      if (part.length === first.length) this.#waiting.shift();
      else this.#waiting[0] = first.subarray(part.length);
    }
    this.#waitingBytes -= out.length;
    if (this.#waitingBytes <= PIECE_BYTES) this.#gotRoom();
    return out;
  }

  async #deliver(piece: StdinPiece): Promise<ExecStdin> {
    const { signal, random, patienceMs = PATIENCE_MS, stallMs = STALL_MS } = this.#options;
    let lastHeardAt = performance.now();
    for (let attempt = 0; ; attempt++) {
      const sentAt = performance.now();
      // A command that reads nothing and a dead connection look the same; sending it again does no harm.
      const stalled = AbortSignal.timeout(stallMs);
      try {
        return await this.#post(piece, AbortSignal.any([signal, stalled]));
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        if (piece.end && piece.bytes.length === 0 && isClosed(error))
          return { stdin_bytes: piece.offset ?? 0, closed: true };
        if (!stalled.aborted && !isPassing(error) && !isAhead(error)) throw error;
        const now = performance.now();
        if (now - sentAt >= Math.min(GOOD_CONNECTION_MS, stallMs)) {
          lastHeardAt = now;
          attempt = 0;
        }
        if (now - lastHeardAt >= patienceMs)
          throw new FuseConnectionError('stdin: the connection was lost and could not be made again', {
            cause: error,
            sent: true,
          });
      }
      await sleep(backoffMs(attempt, random), signal);
    }
  }
}

/** All that was written has been taken, and it is at its end already. */
const isClosed = (error: unknown): boolean => error instanceof FuseApiError && error.details?.reason === 'stdin_closed';

/** The piece before it has not come yet. */
const isAhead = (error: unknown): boolean => error instanceof FuseApiError && error.details?.reason === 'stdin_ahead';

/**
 * stdin of a running command, exactly once: in stretches, each a request under its offset that lasts as long as bytes come, kept until the command has all
 * of it, so that one whose answer was lost may be sent again. Behind one that is full the next one is on its way too, so that the command never waits for
 * us. At most two stretches and 4 MiB more are held; then the writer waits, as on a full pipe. Where a fetch cannot stream what it sends, stretches are
 * pieces of 4 MiB that are sent whole.
 */
import type { ExecStdin } from '@fuse/contract';
import { FuseApiError, FuseConnectionError, FuseError } from './errors.ts';
import type { StdinPiece } from './exec-calls.ts';
import { GOOD_CONNECTION_MS, PATIENCE_MS } from './persist.ts';
import { backoffMs, isPassing, type Random } from './retry.ts';
import { STALL_MS, sleep } from './sleep.ts';
import { StdinBuffer } from './stdin-buffer.ts';
import { StdinStretch } from './stdin-stretch.ts';

const PIECE_BYTES = 4_194_304;
/** From so much on it goes beside the piece before it. */
const MUCH_BYTES = 1_048_576;
const MAX_FLYING = 2;

export interface StdinOptions {
  /** What the command has already; undefined: to be asked for. */
  offset: number | undefined;
  /** Whether a request's body may be a stream. Default: except in a browser, which wants HTTP/2 for it, or cannot. */
  streams?: boolean;
  random: Random;
  signal: AbortSignal;
  patienceMs?: number | undefined;
  stallMs?: number;
}

const isBrowser = 'window' in globalThis || 'WorkerGlobalScope' in globalThis;

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
  readonly #streams: boolean;
  readonly #buffer = new StdinBuffer(PIECE_BYTES);
  /** What the command had before all that is written here. */
  #had: number | undefined;
  /** No request was made again. A connection that was given up may still hold what it had to send. */
  #isQuiet = true;
  #last: StdinStretch | undefined;
  #ending = false;
  #sending: Promise<void> | undefined;

  constructor(post: PostStdin, options: StdinOptions) {
    this.#post = post;
    this.#options = options;
    this.#streams = options.streams ?? !isBrowser;
  }

  async write(bytes: Uint8Array): Promise<void> {
    if (bytes.length === 0) return;
    const pushed = this.#buffer.push(bytes);
    this.#start();
    await pushed;
  }

  async end(): Promise<void> {
    this.#ending = true;
    this.#last?.seal();
    this.#start();
    await this.#sending;
    // The stretch that was on its way may have been the last one.
    this.#start();
    await this.#sending;
  }

  /** What waits is dropped; the command sees its end. */
  async giveUp(): Promise<void> {
    this.#buffer.end();
    await this.end().catch(() => {});
  }

  #start(): void {
    this.#sending ??= this.#send();
    this.#sending.catch(() => {}); // told by the stream
  }

  async #send(): Promise<void> {
    try {
      const flying: Promise<number>[] = [];
      for (;;) {
        const ends = this.#ending && this.#buffer.waitingBytes <= PIECE_BYTES;
        const wanted = this.#buffer.waitingBytes > 0 || (this.#ending && this.#last?.end !== true);
        const isLittle = this.#last?.idled !== false && this.#buffer.waitingBytes < MUCH_BYTES;
        const room = ends || isLittle ? 1 : MAX_FLYING;
        if (!wanted && flying.length === 0) break;
        if (!wanted || flying.length >= room) {
          this.#buffer.forget((await flying.shift()) ?? 0, this.#isQuiet);
          continue;
        }
        this.#had ??= this.#options.offset ?? (await this.#has());
        const stretch = new StdinStretch(this.#buffer, { from: this.#last?.to ?? 0, end: ends });
        this.#last = stretch;
        if (ends || !this.#streams) stretch.fill(PIECE_BYTES);
        const sent = this.#sendStretch(stretch, this.#had);
        sent.catch(() => {}); // told when its turn comes
        flying.push(sent);
        await Promise.race([stretch.sealed, Promise.all(flying)]);
      }
      this.#sending = undefined;
    } catch (error) {
      this.#last?.seal();
      this.#buffer.end();
      this.onFailed(error);
      throw error;
    }
  }

  /** What the command has: nothing, appended to it. */
  async #has(): Promise<number> {
    const nothing = () => ({ bytes: new Uint8Array(), offset: undefined, end: false });
    return (await this.#deliver(nothing)).stdin_bytes;
  }

  /** Resolves with where it ends. */
  async #sendStretch(stretch: StdinStretch, had: number): Promise<number> {
    const { end } = stretch;
    const isWhole = end || !this.#streams;
    let attempts = 0;
    const piece = () => {
      attempts += 1;
      return { bytes: isWhole ? stretch.whole() : stretch.stream(), offset: had + stretch.from, end };
    };
    const { stdin_bytes } = await this.#deliver(piece).catch((error: unknown) => {
      const has = closedAt(error);
      const isEnd = end && stretch.to === stretch.from;
      if (has === undefined || !(isEnd || has >= had + stretch.to)) throw error;
      return { stdin_bytes: had + stretch.to };
    });
    stretch.done();
    if (stdin_bytes < had + stretch.to)
      throw new FuseError(`stdin: ${stdin_bytes} bytes arrived of ${had + stretch.to}`);
    this.#isQuiet &&= attempts === 1;
    return stretch.to;
  }

  async #deliver(piece: () => StdinPiece): Promise<ExecStdin> {
    const { signal, random, patienceMs = PATIENCE_MS, stallMs = STALL_MS } = this.#options;
    let lastHeardAt = performance.now();
    for (let attempt = 0; ; attempt++) {
      const sentAt = performance.now();
      // A command that reads nothing and a dead connection look the same; sending it again does no harm.
      const stalled = AbortSignal.timeout(stallMs);
      try {
        return await this.#post(piece(), AbortSignal.any([signal, stalled]));
      } catch (error) {
        if (signal.aborted) throw signal.reason;
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

/** stdin is closed: behind so many bytes, NaN when that is not said. Undefined: it is not. */
const closedAt = (error: unknown): number | undefined =>
  error instanceof FuseApiError && error.details?.reason === 'stdin_closed'
    ? Number(error.details.stdin_bytes)
    : undefined;

/** What lies before it has not come yet. */
const isAhead = (error: unknown): boolean => error instanceof FuseApiError && error.details?.reason === 'stdin_ahead';

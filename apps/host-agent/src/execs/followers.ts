/**
 * Who follows an exec's log, and how far each has read. With `hold`, nothing that the slowest has not read is dropped, and the command waits; one
 * that takes nothing for STALLED_MS while the command waits for it holds nothing up until it goes on.
 */
import { Notifier } from './notifier.ts';

const STALLED_MS = 10_000;
/** Kept behind what was handed to the slowest: what was on its way to somebody who was cut off is asked for again. */
export const IN_FLIGHT_BYTES = 8 * 1_048_576;

export interface FollowersOptions {
  /** Absent: nobody holds anything. */
  hold?: { until_followed_ms: number } | undefined;
  stalledMs?: number;
}

interface Reader {
  position: number;
  movedAtMs: number;
  stalled: boolean;
}

export interface Follower {
  /** Everything below was handed over. */
  moveTo(position: number): void;
  close(): void;
}

export class Followers {
  readonly #options: FollowersOptions;
  readonly #readers = new Set<Reader>();
  readonly #moves = new Notifier();
  /** Stands for those who may still come, or come back. */
  #expected: { position: number; untilMs: number } | undefined;
  #released = false;

  constructor(options: FollowersOptions) {
    this.#options = options;
  }

  get count(): number {
    return this.#readers.size;
  }

  /** As if there were a follower there, for as long as `hold` says; the first real one takes its place. */
  expect(position: number): void {
    const forMs = this.#options.hold?.until_followed_ms ?? 0;
    this.#expected = forMs > 0 ? { position, untilMs: performance.now() + forMs } : undefined;
    this.#moves.notify();
  }

  add(position: number): Follower {
    const reader: Reader = { position, movedAtMs: performance.now(), stalled: false };
    this.#readers.add(reader);
    this.#expected = undefined;
    this.#moves.notify();
    return {
      moveTo: (to) => {
        if (to === reader.position) return;
        reader.position = to;
        reader.movedAtMs = performance.now();
        reader.stalled = false;
        this.#moves.notify();
      },
      close: () => {
        if (!this.#readers.delete(reader)) return;
        if (this.#readers.size === 0) this.expect(reader.position);
        this.#moves.notify();
      },
    };
  }

  /** Nobody holds anything any more: the command is to end. */
  release(): void {
    this.#released = true;
    this.#moves.notify();
  }

  /** Of the slowest that counts; Infinity when none does. */
  get slowest(): number {
    if (this.#options.hold === undefined || this.#released) return Number.POSITIVE_INFINITY;
    let slowest = Number.POSITIVE_INFINITY;
    for (const { stalled, position } of this.#readers) if (!stalled) slowest = Math.min(slowest, position);
    const expected = this.#expected;
    if (expected !== undefined && performance.now() < expected.untilMs) slowest = Math.min(slowest, expected.position);
    return slowest;
  }

  /** Resolves once `isFar(slowest)` is false; rejects with the signal's reason. */
  async whileFar(isFar: (slowest: number) => boolean, signal: AbortSignal): Promise<void> {
    const from = performance.now();
    while (isFar(this.slowest)) {
      signal.throwIfAborted();
      await this.#moves.wait({ timeoutMs: this.#nextChangeMs(from), signal });
      for (const reader of this.#readers)
        if (this.#stallsInMs(reader, from) <= 0 && isFar(reader.position)) reader.stalled = true;
    }
  }

  #stallsInMs(reader: Reader, fromMs: number): number {
    return Math.max(reader.movedAtMs, fromMs) + (this.#options.stalledMs ?? STALLED_MS) - performance.now();
  }

  #nextChangeMs(fromMs: number): number {
    const waits = [...this.#readers].filter(({ stalled }) => !stalled).map((each) => this.#stallsInMs(each, fromMs));
    if (this.#expected !== undefined) waits.push(this.#expected.untilMs - performance.now());
    return Math.max(1, Math.min(STALLED_MS, ...waits));
  }
}

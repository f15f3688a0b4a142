/**
 * A stretch of stdin that goes up as one request. It grows as bytes are written and sent, until it is sealed: when it is long enough, when nothing was
 * written for a moment, or after some seconds, so that one to a command that reads slowly stays short. It is kept whole: each attempt to send it begins
 * at its beginning.
 */
import type { StdinQueue } from './stdin-queue.ts';

const MAX_BYTES = 12 * 1_048_576;
const IDLE_MS = 50;
const MAX_AGE_MS = 5_000;

export class StdinStretch {
  /** Of the command's stdin. */
  readonly offset: number;
  /** stdin ends behind it. */
  readonly end: boolean;
  readonly sealed: Promise<void>;
  /** It was sealed because nothing more came. */
  idled = false;
  readonly #queue: StdinQueue;
  readonly #chunks: Uint8Array[] = [];
  #bytes = 0;
  #isSealed = false;
  #onSealed: () => void = () => {};
  readonly #age = setTimeout(() => this.seal(), MAX_AGE_MS);

  constructor(queue: StdinQueue, { offset, end }: { offset: number; end: boolean }) {
    this.#queue = queue;
    this.offset = offset;
    this.end = end;
    this.sealed = new Promise((resolve) => {
      this.#onSealed = resolve;
    });
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Where the next one begins, once it is sealed. */
  get next(): number {
    return this.offset + this.#bytes;
  }

  seal(): void {
    if (this.#isSealed) return;
    this.#isSealed = true;
    clearTimeout(this.#age);
    this.#onSealed();
    this.#queue.wake();
  }

  /** With what waits now, and no more: for requests whose bytes must be known before they are sent. */
  fill(maxBytes: number): void {
    while (!this.#isSealed && this.#bytes < maxBytes && this.#grow(maxBytes - this.#bytes) !== undefined);
    this.idled = this.#bytes < maxBytes;
    this.seal();
  }

  /** The command has all of it. */
  forget(): void {
    this.seal();
    this.#chunks.length = 0;
  }

  whole(): Uint8Array {
    const out = new Uint8Array(this.#bytes);
    let at = 0;
    for (const chunk of this.#chunks) {
      out.set(chunk, at);
      at += chunk.length;
    }
    return out;
  }

  /** From its beginning to where it will be sealed. */
  stream(): ReadableStream<Uint8Array> {
    let at = 0;
    let cancelled = false;
    return new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          while (!cancelled) {
            const chunk = this.#chunks[at] ?? this.#grow(MAX_BYTES - this.#bytes);
            if (chunk !== undefined) {
              at += 1;
              return controller.enqueue(chunk);
            }
            if (this.#isSealed) return controller.close();
            await this.#more();
          }
        },
        cancel: () => {
          cancelled = true;
          this.#queue.wake();
        },
      },
      { highWaterMark: 0 },
    );
  }

  #grow(maxBytes: number): Uint8Array | undefined {
    const chunk = this.#isSealed ? undefined : this.#queue.take(maxBytes);
    if (chunk === undefined) return undefined;
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes >= MAX_BYTES) this.seal();
    return chunk;
  }

  async #more(): Promise<void> {
    const idle = setTimeout(() => {
      this.idled = !this.#isSealed;
      this.seal();
    }, IDLE_MS);
    await this.#queue.changed();
    clearTimeout(idle);
  }
}

/**
 * A stretch of stdin that goes up as one request. It grows as bytes are written and sent, until it is sealed: when it is long enough, when nothing was
 * written for a moment, or after some seconds, so that one to a command that reads slowly stays short. It is kept whole: each attempt to send it begins
 * at its beginning.
 */
import { FuseError } from './errors.ts';
import type { StdinBuffer } from './stdin-buffer.ts';

const MAX_BYTES = 14 * 1_048_576;
const IDLE_MS = 50;
const MAX_AGE_MS = 5_000;

export class StdinStretch {
  /** Of what was written. */
  readonly from: number;
  /** stdin ends behind it. */
  readonly end: boolean;
  readonly sealed: Promise<void>;
  /** It was sealed because nothing more came. */
  idled = false;
  readonly #buffer: StdinBuffer;
  #to: number;
  #isSealed = false;
  #isDone = false;
  #onSealed: () => void = () => {};
  readonly #age = setTimeout(() => this.seal(), MAX_AGE_MS);

  constructor(buffer: StdinBuffer, { from, end }: { from: number; end: boolean }) {
    this.#buffer = buffer;
    this.from = from;
    this.#to = from;
    this.end = end;
    this.sealed = new Promise((resolve) => {
      this.#onSealed = resolve;
    });
  }

  /** Where the next one begins, once it is sealed. */
  get to(): number {
    return this.#to;
  }

  seal(): void {
    if (this.#isSealed) return;
    this.#isSealed = true;
    clearTimeout(this.#age);
    this.#onSealed();
    this.#buffer.wake();
  }

  /** The command has all of it: it is not read again. */
  done(): void {
    this.#isDone = true;
    this.seal();
  }

  /** With what waits now, and no more: for requests whose bytes must be known before they are sent. */
  fill(maxBytes: number): void {
    this.#to += this.#buffer.send(maxBytes);
    this.idled = this.#to - this.from < maxBytes;
    this.seal();
  }

  whole(): Uint8Array {
    const out = new Uint8Array(this.#to - this.from);
    for (let at = this.from; at < this.#to; ) {
      const part = this.#buffer.read(at, this.#to);
      out.set(part, at - this.from);
      at += part.length;
    }
    return out;
  }

  /** From its beginning to where it will be sealed. */
  stream(): ReadableStream<Uint8Array> {
    let at = this.from;
    let cancelled = false;
    return new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          while (!cancelled) {
            if (this.#isDone) return controller.error(new FuseError('the command has it already'));
            if (at === this.#to) this.#grow();
            if (at < this.#to) {
              const part = this.#buffer.read(at, this.#to);
              at += part.length;
              return controller.enqueue(part);
            }
            if (this.#isSealed) return controller.close();
            await this.#more();
          }
        },
        cancel: () => {
          cancelled = true;
          this.#buffer.wake();
        },
      },
      { highWaterMark: 0 },
    );
  }

  #grow(): void {
    if (this.#isSealed) return;
    this.#to += this.#buffer.send(MAX_BYTES - (this.#to - this.from));
    if (this.#to - this.from >= MAX_BYTES) this.seal();
  }

  async #more(): Promise<void> {
    const idle = setTimeout(() => {
      this.idled = !this.#isSealed;
      this.seal();
    }, IDLE_MS);
    await this.#buffer.changed();
    clearTimeout(idle);
  }
}

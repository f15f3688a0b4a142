/** What was written to a command's stdin and is not on its way yet. */

/** A chunk of so many bytes goes as it was written; smaller ones are joined up to it. */
const CHUNK_BYTES = 65_536;
/** Of one that is larger, so much is copied at a time. */
const MAX_CHUNK_BYTES = 1_048_576;

export class StdinQueue {
  readonly #limitBytes: number;
  #chunks: Uint8Array[] = [];
  #bytes = 0;
  #ended = false;
  #watchers: (() => void)[] = [];

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Copied: the caller may use its array again. Resolves once there is room for more. */
  async push(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length && !this.#ended; at += MAX_CHUNK_BYTES) {
      const chunk = new Uint8Array(bytes.subarray(at, at + MAX_CHUNK_BYTES)); // a Buffer's own `slice` copies nothing
      this.#chunks.push(chunk);
      this.#bytes += chunk.length;
      this.wake();
      while (this.#bytes > this.#limitBytes) await this.changed();
    }
  }

  /** At most so many bytes; undefined when there is nothing. */
  take(maxBytes: number): Uint8Array | undefined {
    const [first] = this.#chunks;
    if (first === undefined) return undefined;
    const joins = first.length < CHUNK_BYTES && this.#chunks.length > 1;
    const chunk = joins ? this.#join(Math.min(CHUNK_BYTES, maxBytes, this.#bytes)) : first.subarray(0, maxBytes);
    if (!joins) this.#drop(chunk.length);
    this.#bytes -= chunk.length;
    this.wake();
    return chunk;
  }

  /** What is there is dropped, and what comes. */
  end(): void {
    this.#ended = true;
    this.#chunks = [];
    this.#bytes = 0;
    this.wake();
  }

  /** Something was pushed or taken, or what waits here is to look again. */
  changed(): Promise<void> {
    return new Promise((resolve) => this.#watchers.push(resolve));
  }

  wake(): void {
    for (const wake of this.#watchers.splice(0)) wake();
  }

  #join(size: number): Uint8Array {
    const out = new Uint8Array(size);
    for (let at = 0; at < size; ) {
      const first = this.#chunks[0] as Uint8Array; // they are #bytes together
      const part = first.subarray(0, size - at);
      out.set(part, at);
      at += part.length;
      this.#drop(part.length);
    }
    return out;
  }

  /** Off the first chunk. */
  #drop(bytes: number): void {
    const first = this.#chunks[0] as Uint8Array; // whoever drops has looked at it
    if (bytes === first.length) this.#chunks.shift();
    else this.#chunks[0] = first.subarray(bytes);
  }
}

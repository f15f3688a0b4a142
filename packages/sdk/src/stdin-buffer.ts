/**
 * What was written to a command's stdin and may still have to be sent, by its place in what was written. It is copied into blocks, which are filled again
 * once the command has what is in them: memory that is new is slow.
 */

const BLOCK_BYTES = 1_048_576;

export class StdinBuffer {
  readonly #limitBytes: number;
  readonly #blocks = new Map<number, Uint8Array>();
  #spare: Uint8Array[] = [];
  #written = 0;
  #sent = 0;
  #ended = false;
  #watchers: (() => void)[] = [];

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  /** Written, and not sent yet. */
  get waitingBytes(): number {
    return this.#written - this.#sent;
  }

  /** Copied: the caller may use its array again. Resolves once there is room for more. */
  async push(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length && !this.#ended; ) {
      const from = this.#written % BLOCK_BYTES;
      const part = bytes.subarray(at, at + BLOCK_BYTES - from);
      this.#block(this.#written).set(part, from);
      this.#written += part.length;
      at += part.length;
      this.wake();
      while (this.waitingBytes > this.#limitBytes) await this.changed();
    }
  }

  /** Sends what follows, at most so many bytes: they are to be read from then on. Returns how many. */
  send(maxBytes: number): number {
    const bytes = Math.min(maxBytes, this.waitingBytes);
    this.#sent += bytes;
    this.wake();
    return bytes;
  }

  /** A part of what lies between; it stays as it is until it is forgotten. */
  read(from: number, to: number): Uint8Array {
    const start = from % BLOCK_BYTES;
    return this.#block(from).subarray(start, Math.min(BLOCK_BYTES, start + to - from));
  }

  /** What lies before is not read again. `isQuiet`: nobody holds a part of it any more either. */
  forget(before: number, isQuiet: boolean): void {
    for (const [index, block] of this.#blocks) {
      if ((index + 1) * BLOCK_BYTES > before) continue;
      this.#blocks.delete(index);
      if (isQuiet) this.#spare.push(block);
    }
    if (this.waitingBytes === 0) this.#spare = [];
  }

  /** What waits is dropped, and what comes. */
  end(): void {
    this.#ended = true;
    this.#written = this.#sent;
    this.wake();
  }

  /** Something was written or sent, or who waits here is to look again. */
  changed(): Promise<void> {
    return new Promise((resolve) => this.#watchers.push(resolve));
  }

  wake(): void {
    for (const wake of this.#watchers.splice(0)) wake();
  }

  #block(at: number): Uint8Array {
    const index = Math.floor(at / BLOCK_BYTES);
    let block = this.#blocks.get(index);
    if (block === undefined) {
      block = this.#spare.pop() ?? new Uint8Array(BLOCK_BYTES);
      this.#blocks.set(index, block);
    }
    return block;
  }
}

/** The last bytes of a log, for those who follow closely: they need no file. */
const LIMIT_BYTES = 128 * 1024;
/** Smaller pieces are copied, so that they do not keep a large buffer alive. */
const OWN_BYTES = 8 * 1024;

export class RecentBytes {
  #pieces: { offset: number; bytes: Uint8Array }[] = [];
  #size = 0;

  /** Pieces follow each other. */
  add(offset: number, bytes: Uint8Array): void {
    this.#pieces.push({ offset, bytes: bytes.length < OWN_BYTES ? Buffer.from(bytes) : bytes });
    this.#size += bytes.length;
    while (this.#size > LIMIT_BYTES && this.#pieces.length > 1) this.#size -= this.#pieces.shift()?.bytes.length ?? 0;
  }

  clear(): void {
    this.#pieces = [];
    this.#size = 0;
  }

  /** What is kept from there on, to the end of one piece. */
  from(position: number): Uint8Array | undefined {
    // Who follows closely wants the last one.
    for (let at = this.#pieces.length - 1; at >= 0; at--) {
      const piece = this.#pieces[at];
      if (piece === undefined || position >= piece.offset + piece.bytes.length) return undefined;
      if (position >= piece.offset) return piece.bytes.subarray(position - piece.offset);
    }
    return undefined;
  }
}

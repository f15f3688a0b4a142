/** The last bytes of stdin that went to a host: what it had not taken when the connection broke is sent again. */
const BLOCK_BYTES = 16_384;

export class RecentStdin {
  readonly #capacity: number;
  readonly #blocks: { bytes: Buffer; used: number }[] = [];
  #kept = 0;
  #sent = 0;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** Of all that was pushed. */
  get sent(): number {
    return this.#sent;
  }

  push(bytes: Uint8Array): void {
    this.#sent += bytes.length;
    for (let at = 0; at < bytes.length; ) {
      let last = this.#blocks.at(-1);
      if (last === undefined || last.used === BLOCK_BYTES) {
        last = { bytes: Buffer.allocUnsafe(BLOCK_BYTES), used: 0 };
        this.#blocks.push(last);
      }
      const piece = bytes.subarray(at, at + BLOCK_BYTES - last.used);
      last.bytes.set(piece, last.used);
      last.used += piece.length;
      this.#kept += piece.length;
      at += piece.length;
    }
    while (this.#kept - (this.#blocks[0]?.used ?? 0) >= this.#capacity) this.#kept -= this.#blocks.shift()?.used ?? 0;
  }

  /** Everything from byte `from` on; undefined when that is not kept any more. */
  since(from: number): Buffer[] | undefined {
    let at = this.#sent - this.#kept;
    if (from < at) return undefined;
    const pieces: Buffer[] = [];
    for (const { bytes, used } of this.#blocks) {
      if (at + used > from) pieces.push(Buffer.from(bytes.subarray(Math.max(0, from - at), used)));
      at += used;
    }
    return pieces;
  }
}

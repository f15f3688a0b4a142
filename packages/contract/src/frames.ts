/**
 * The frame format of `fuse-attach/1` (api.md 3.2), used wherever streams share a byte channel:
 *   byte 0 type · bytes 1–3 reserved (written 0, ignored) · bytes 4–7 payload length, u32 big-endian · payload
 * A length over 1 MiB is refused before anything is allocated. Unknown types are skipped by readers.
 */
export const FRAME_HEADER_BYTES = 8;
export const MAX_FRAME_PAYLOAD_BYTES = 1_048_576;

export const frameType = {
  stdin: 0,
  stdout: 1,
  stderr: 2,
  resize: 3,
  exit: 4,
  /** Host to guest: no more stdin. */
  stdinEnd: 5,
  /** Host to guest: payload u64 big-endian, every byte of the frame stream below this offset is kept safe. */
  ack: 6,
  /** To the command: payload JSON {signal, tree?}: to the process group of its leader, or to all that it started. */
  signal: 7,
  /** From the server, empty: nothing happened for a while, the stream is alive. Counts in no offset. */
  heartbeat: 8,
  /** From the server: payload JSON {from, to}: these bytes of the frame stream are not kept any more; it goes on at `to`. Counts in no offset itself. */
  gap: 9,
  /** Host to guest, first frame only: payload JSON ExecSpec. */
  spec: 16,
  /** From the server, its first frame where both sides talk: payload JSON ExecOpened. Counts in no offset. */
  open: 17,
} as const;

export interface Frame {
  type: number;
  payload: Uint8Array;
}

export function encodeFrame(type: number, payload: Uint8Array): Uint8Array {
  if (payload.length > MAX_FRAME_PAYLOAD_BYTES)
    throw new RangeError(`frame payload of ${payload.length} bytes is over ${MAX_FRAME_PAYLOAD_BYTES}`);
  const out = new Uint8Array(FRAME_HEADER_BYTES + payload.length);
  out[0] = type;
  new DataView(out.buffer).setUint32(4, payload.length);
  out.set(payload, FRAME_HEADER_BYTES);
  return out;
}

export class FrameError extends Error {
  override readonly name = 'FrameError';
}

/** Incremental parser: `push` bytes cut anywhere, get the whole frames that they complete. Holds at most one frame. */
export class FrameParser {
  #chunks: Uint8Array[] = [];
  #length = 0;

  *push(chunk: Uint8Array): Generator<Frame> {
    if (chunk.length > 0) {
      this.#chunks.push(chunk);
      this.#length += chunk.length;
    }
    for (;;) {
      if (this.#length < FRAME_HEADER_BYTES) return;
      const header = this.#peek(FRAME_HEADER_BYTES);
      const size = new DataView(header.buffer, header.byteOffset).getUint32(4);
      if (size > MAX_FRAME_PAYLOAD_BYTES)
        throw new FrameError(`frame payload of ${size} bytes is over ${MAX_FRAME_PAYLOAD_BYTES}`);
      if (this.#length < FRAME_HEADER_BYTES + size) return;
      const whole = this.#take(FRAME_HEADER_BYTES + size);
      yield { type: whole[0] ?? 0, payload: whole.subarray(FRAME_HEADER_BYTES) };
    }
  }

  /** Bytes of an unfinished frame; not 0 at the end of a stream means that it was cut. */
  get pendingBytes(): number {
    return this.#length;
  }

  #peek(size: number): Uint8Array {
    const first = this.#chunks[0];
    if (first !== undefined && first.length >= size) return first.subarray(0, size);
    const joined = new Uint8Array(this.#length);
    let at = 0;
    for (const chunk of this.#chunks) {
      joined.set(chunk, at);
      at += chunk.length;
    }
    this.#chunks = [joined];
    return joined.subarray(0, size);
  }

  #take(size: number): Uint8Array {
    const head = this.#peek(size);
    const first = this.#chunks[0] as Uint8Array; // #peek left at least `size` bytes in it
    if (first.length === size) this.#chunks.shift();
    else this.#chunks[0] = first.subarray(size);
    this.#length -= size;
    return head;
  }
}

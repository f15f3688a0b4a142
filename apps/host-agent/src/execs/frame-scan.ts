/**
 * Finds the borders of frames in the stream that a (hostile) guest sends, without copying it. Only stdout, stderr and one closing exit frame may
 * come, with payloads of at most 1 MiB; the exit frame's is parsed. Throws FrameError.
 */
import { FRAME_HEADER_BYTES, FrameError, frameType, MAX_FRAME_PAYLOAD_BYTES } from '@fuse/contract';
import type { GuestExecExit } from '@fuse/host-protocol';
import { MAX_EXIT_PAYLOAD_BYTES, parseExit } from './frame-sieve.ts';

export interface Scanned {
  /** Offsets within the chunk where a frame ends, the last one always among them, others only `grainBytes` apart. */
  borders: number[];
  /** Nothing after it counts: the last border is its end. */
  exit?: GuestExecExit;
}

export class FrameScan {
  readonly #grainBytes: number;
  readonly #header = Buffer.alloc(FRAME_HEADER_BYTES);
  #headerBytes = 0;
  #payloadLeft = 0;
  #exitPayload: Buffer | undefined;
  #sinceBorder = 0;

  constructor(grainBytes: number) {
    this.#grainBytes = grainBytes;
  }

  push(chunk: Uint8Array): Scanned {
    const borders: number[] = [];
    let last = 0;
    for (let at = 0; at < chunk.length; ) {
      const from = at;
      at = this.#headerBytes < FRAME_HEADER_BYTES ? this.#takeHeader(chunk, at) : this.#takePayload(chunk, at);
      this.#sinceBorder += at - from;
      if (this.#headerBytes < FRAME_HEADER_BYTES || this.#payloadLeft > 0) continue;
      last = at;
      this.#headerBytes = 0;
      if (this.#exitPayload !== undefined) return { borders: [...borders, at], exit: parseExit(this.#exitPayload) };
      if (this.#sinceBorder < this.#grainBytes) continue;
      borders.push(at);
      this.#sinceBorder = 0;
    }
    if (last > (borders.at(-1) ?? 0)) {
      borders.push(last);
      this.#sinceBorder = chunk.length - last;
    }
    return { borders };
  }

  #takeHeader(chunk: Uint8Array, at: number): number {
    const taken = chunk.subarray(at, at + FRAME_HEADER_BYTES - this.#headerBytes);
    this.#header.set(taken, this.#headerBytes);
    this.#headerBytes += taken.length;
    if (this.#headerBytes === FRAME_HEADER_BYTES) this.#beginFrame(this.#header[0] ?? 0, this.#header.readUInt32BE(4));
    return at + taken.length;
  }

  #beginFrame(type: number, payloadBytes: number): void {
    if (payloadBytes > MAX_FRAME_PAYLOAD_BYTES)
      throw new FrameError(`frame payload of ${payloadBytes} bytes is over ${MAX_FRAME_PAYLOAD_BYTES}`);
    this.#payloadLeft = payloadBytes;
    if (type === frameType.exit) {
      if (payloadBytes > MAX_EXIT_PAYLOAD_BYTES) throw new FrameError(`exit frame of ${payloadBytes} bytes`);
      this.#exitPayload = Buffer.alloc(payloadBytes);
    } else if (type !== frameType.stdout && type !== frameType.stderr) {
      throw new FrameError(`the guest sent a frame of type ${type}`);
    }
  }

  #takePayload(chunk: Uint8Array, at: number): number {
    const taken = chunk.subarray(at, at + this.#payloadLeft);
    this.#exitPayload?.set(taken, this.#exitPayload.length - this.#payloadLeft);
    this.#payloadLeft -= taken.length;
    return at + taken.length;
  }
}

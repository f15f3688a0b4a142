/**
 * What is kept of the frame stream that a (hostile) guest sends for one exec. Frames are whole or not there; only stdout, stderr and
 * one closing exit frame may come. The log keeps the first `limitBytes` of stdout and stderr frames, the one that crosses the
 * bound cut short, and always the exit frame; whatever else comes is counted and dropped.
 */
import {
  encodeFrame,
  FRAME_HEADER_BYTES,
  type Frame,
  FrameError,
  FrameParser,
  frameType,
  MAX_FRAME_PAYLOAD_BYTES,
} from '@fuse/contract';
import { GuestExecExit } from '@fuse/host-protocol';

export const MAX_EXIT_PAYLOAD_BYTES = 4_096;

export interface Sieved {
  /** To be appended to the log, in order. */
  keep: Uint8Array[];
  /** Present once: nothing after it counts. */
  exit?: GuestExecExit;
}

export interface SieveStart {
  limitBytes: number;
  /** Where in the guest's stream the next byte stands. */
  guestOffset: number;
  /** Bytes that the log holds already. */
  logBytes: number;
  truncated: boolean;
}

export class FrameSieve {
  readonly #limitBytes: number;
  #parser = new FrameParser();
  #guestOffset: number;
  #logBytes: number;
  #truncated: boolean;

  constructor(start: SieveStart) {
    this.#limitBytes = start.limitBytes;
    this.#guestOffset = start.guestOffset;
    this.#logBytes = start.logBytes;
    this.#truncated = start.truncated;
  }

  /** End of the last whole frame in the guest's stream: what an ack may cover once `keep` is written, and where a new conversation starts. */
  get guestOffset(): number {
    return this.#guestOffset;
  }

  get truncated(): boolean {
    return this.#truncated;
  }

  push(chunk: Uint8Array): Sieved {
    const keep: Uint8Array[] = [];
    for (const frame of this.#parser.push(chunk)) {
      this.#guestOffset += FRAME_HEADER_BYTES + frame.payload.length;
      if (frame.type === frameType.exit) {
        const exit = parseExit(frame.payload);
        keep.push(encodeFrame(frame.type, frame.payload));
        return { keep, exit };
      }
      const kept = this.#cut(frame);
      if (kept !== undefined) keep.push(kept);
    }
    return { keep };
  }

  /** The conversation was cut: the half frame that it left will come again. */
  restart(guestOffset: number): void {
    this.#parser = new FrameParser();
    this.#guestOffset = guestOffset;
  }

  /** From here on everything is dropped. */
  truncate(): void {
    this.#truncated = true;
  }

  #cut(frame: Frame): Uint8Array | undefined {
    if (frame.type !== frameType.stdout && frame.type !== frameType.stderr)
      throw new FrameError(`the guest sent a frame of type ${frame.type}`);
    if (this.#truncated) return undefined;
    const room = this.#limitBytes - this.#logBytes - FRAME_HEADER_BYTES;
    if (frame.payload.length > room) this.#truncated = true;
    if (room <= 0) return undefined;
    const kept = encodeFrame(frame.type, frame.payload.subarray(0, Math.min(room, MAX_FRAME_PAYLOAD_BYTES)));
    this.#logBytes += kept.length;
    return kept;
  }
}

export function parseExit(payload: Uint8Array): GuestExecExit {
  if (payload.length > MAX_EXIT_PAYLOAD_BYTES) throw new FrameError(`exit frame of ${payload.length} bytes`);
  try {
    return GuestExecExit.parse(JSON.parse(Buffer.from(payload).toString('utf8')));
  } catch (cause) {
    throw new FrameError('the guest sent an exit frame that does not parse', { cause });
  }
}

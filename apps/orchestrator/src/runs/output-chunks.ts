/** A run's frame stream cut into what one event carries, each piece with the position after it. */
import { FRAME_HEADER_BYTES, FrameParser, frameType } from '@fuse/contract';
import type { FramePosition } from './event-position.ts';

export const OUTPUT_CHUNK_BYTES = 65_536;

export interface OutputChunk {
  stream: 'stdout' | 'stderr';
  bytes: Uint8Array;
  /** Where a reader stands that has this chunk. */
  after: FramePosition;
}

/**
 * `bytes` starts at `from.frameStart`. Ends with `bytes`; an unfinished frame at its end is not delivered (it is read again from the
 * last position). Frames that are no output are stepped over.
 */
export async function* outputChunks(
  bytes: AsyncIterable<Uint8Array>,
  from: FramePosition,
): AsyncGenerator<OutputChunk> {
  const parser = new FrameParser();
  let { frameStart, within } = from;
  for await (const piece of bytes) {
    for (const { type, payload } of parser.push(piece)) {
      const stream = type === frameType.stdout ? 'stdout' : type === frameType.stderr ? 'stderr' : undefined;
      const nextFrame = frameStart + FRAME_HEADER_BYTES + payload.length;
      for (let at = within; stream !== undefined && at < payload.length; at += OUTPUT_CHUNK_BYTES) {
        const end = Math.min(at + OUTPUT_CHUNK_BYTES, payload.length);
        const after = end === payload.length ? { frameStart: nextFrame, within: 0 } : { frameStart, within: end };
        yield { stream, bytes: payload.subarray(at, end), after };
      }
      frameStart = nextFrame;
      within = 0;
    }
  }
}

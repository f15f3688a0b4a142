/**
 * A connection to a port between orchestrator and host agent: frames (contract/frames.ts) of its bytes, and one of type `stdinEnd` where a side ends. What
 * ends without it was cut. TCP alone does not tell: a reset behind bytes that are still unread reads as an end like any other in Node.
 */
import { encodeFrame, FrameParser, frameType, MAX_FRAME_PAYLOAD_BYTES } from '@fuse/contract';

export const HOST_TUNNEL_PROTOCOL = 'fuse-tunnel-frames/1';

export class TunnelCut extends Error {
  override readonly name = 'TunnelCut';
}

export const tunnelEnd = (): Uint8Array => encodeFrame(frameType.stdinEnd, new Uint8Array());

export function* tunnelFrames(bytes: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += MAX_FRAME_PAYLOAD_BYTES)
    yield encodeFrame(frameType.stdout, bytes.subarray(at, at + MAX_FRAME_PAYLOAD_BYTES));
}

/** Up to the frame that ends them. Throws TunnelCut when there is none. */
export async function* tunnelBytes(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void> {
  const parser = new FrameParser();
  for await (const chunk of chunks)
    for (const { type, payload } of parser.push(chunk)) {
      if (type === frameType.stdinEnd) return;
      if (type !== frameType.stdout) throw new TunnelCut(`a tunnel has no frames of type ${type}`);
      yield payload;
    }
  throw new TunnelCut('the tunnel was cut');
}

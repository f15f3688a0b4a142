import { describe, expect, it } from 'vitest';
import { TunnelCut, tunnelBytes, tunnelEnd, tunnelFrames } from './tunnel-frames.ts';

async function* oneByteEach(pieces: Uint8Array[]): AsyncGenerator<Uint8Array> {
  for (const byte of Buffer.concat(pieces)) yield Uint8Array.of(byte);
}

async function all(chunks: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const piece of tunnelBytes(chunks)) pieces.push(piece);
  return Buffer.concat(pieces);
}

describe('the frames of a tunnel', () => {
  it('give the bytes back, however they were cut', async () => {
    const frames = [...tunnelFrames(Buffer.from('some')), ...tunnelFrames(Buffer.from(' bytes')), tunnelEnd()];
    expect((await all(oneByteEach(frames))).toString()).toBe('some bytes');
  });

  it('take pieces of any size', async () => {
    const bytes = Buffer.alloc(2_500_000, 'x');
    const frames = Buffer.concat([...tunnelFrames(bytes), tunnelEnd()]);
    async function* whole() {
      yield frames;
    }
    expect((await all(whole())).equals(bytes)).toBe(true);
  });

  it('tell a cut from an end', async () => {
    const frames = [...tunnelFrames(Buffer.from('some'))];
    await expect(all(oneByteEach(frames))).rejects.toThrow(TunnelCut);
    await expect(all(oneByteEach([tunnelEnd().subarray(0, 7)]))).rejects.toThrow(TunnelCut);
    await expect(all(oneByteEach([]))).rejects.toThrow(TunnelCut);
  });
});

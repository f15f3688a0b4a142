import { randomBytes } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { CHUNK_BYTES, digestOfChunk, maxPackedBytes, packChunk, unpackChunk } from './chunk.ts';

describe('a chunk', () => {
  it.each([
    ['text', Buffer.from('abc '.repeat(CHUNK_BYTES / 4))],
    ['noise', randomBytes(CHUNK_BYTES)],
    ['one byte', Buffer.from([7])],
  ])('of %s comes out as it went in, and never much larger', async (_what, plain) => {
    const packed = await packChunk(plain);
    expect(packed.length).toBeLessThanOrEqual(maxPackedBytes(plain.length));
    const out = await unpackChunk(packed, { sha256: digestOfChunk(plain), sizeBytes: plain.length });
    expect(out.equals(plain)).toBe(true);
  });

  it('that is not what its name says is refused', async () => {
    const plain = randomBytes(1_000);
    const wanted = { sha256: digestOfChunk(plain), sizeBytes: plain.length };
    const other = await packChunk(randomBytes(1_000));
    const flipped = Buffer.from(await packChunk(plain));
    flipped[500] = (flipped[500] ?? 0) ^ 1;
    const wrong = [other, flipped, plain, Buffer.alloc(0), (await packChunk(plain)).subarray(0, 600)];
    for (const packed of wrong)
      await expect(unpackChunk(packed, wanted)).rejects.toMatchObject({ code: 'integrity_error' });
  });

  it('never inflates beyond its size', async () => {
    const bomb = gzipSync(Buffer.alloc(64 * 1024 ** 2));
    const wanted = { sha256: digestOfChunk(Buffer.alloc(CHUNK_BYTES)), sizeBytes: CHUNK_BYTES };
    await expect(unpackChunk(bomb, wanted)).rejects.toMatchObject({ code: 'integrity_error' });
  });
});

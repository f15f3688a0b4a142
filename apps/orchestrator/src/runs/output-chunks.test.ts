import { encodeFrame, frameType } from '@fuse/contract';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { OUTPUT_CHUNK_BYTES, outputChunks } from './output-chunks.ts';

const frame = fc.record({
  type: fc.constantFrom(frameType.stdout, frameType.stderr, frameType.exit, 99),
  payload: fc.oneof(
    fc.uint8Array({ maxLength: 20 }),
    fc
      .integer({ min: OUTPUT_CHUNK_BYTES - 1, max: 3 * OUTPUT_CHUNK_BYTES })
      .map((size) => new Uint8Array(size).fill(7)),
  ),
});

async function* cutInto(bytes: Buffer, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function collect(bytes: Buffer, from = { frameStart: 0, within: 0 }, size = 1_000) {
  const chunks = [];
  for await (const chunk of outputChunks(cutInto(bytes.subarray(from.frameStart), size), from)) chunks.push(chunk);
  return chunks;
}

const joined = (chunks: { stream: string; bytes: Uint8Array }[], stream: string): string =>
  Buffer.concat(chunks.filter((chunk) => chunk.stream === stream).map((chunk) => chunk.bytes)).toString('hex');

describe('output chunks', () => {
  it('carry every byte of both streams, none over its size, however the stream is cut and wherever a reader begins again', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(frame, { maxLength: 6 }),
        fc.integer({ min: 1, max: 70_000 }),
        fc.nat(),
        async (frames, size, cut) => {
          const log = Buffer.concat(frames.map(({ type, payload }) => encodeFrame(type, payload)));
          const whole = await collect(log, undefined, size);
          for (const stream of ['stdout', 'stderr'] as const) {
            const expected = frames.filter(({ type }) => type === frameType[stream]).map(({ payload }) => payload);
            expect(joined(whole, stream)).toBe(Buffer.concat(expected).toString('hex'));
          }
          for (const { bytes } of whole) expect(bytes.length).toBeLessThanOrEqual(OUTPUT_CHUNK_BYTES);
          if (whole.length === 0) return;
          const read = whole.slice(0, (cut % whole.length) + 1);
          const resumed = [...read, ...(await collect(log, read.at(-1)?.after, size))];
          for (const stream of ['stdout', 'stderr']) expect(joined(resumed, stream)).toBe(joined(whole, stream));
        },
      ),
      { numRuns: 60 },
    );
  });

  it('leave an unfinished frame for later', async () => {
    const log = Buffer.from(encodeFrame(frameType.stdout, Buffer.from('hello')));
    expect(await collect(log.subarray(0, log.length - 1))).toEqual([]);
  });
});

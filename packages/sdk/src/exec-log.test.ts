import { encodeFrame, FRAME_HEADER_BYTES, frameType } from '@fuse/contract';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { FuseClient } from './client.ts';
import { FuseConnectionError, FuseError } from './errors.ts';
import { framesOf } from './exec-log.ts';

const inPieces = (bytes: Uint8Array, size: number) =>
  ReadableStream.from(
    (function* () {
      for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
    })(),
  );

it('frames come out as they went in, wherever they are cut', async () => {
  const frame = fc.record({ type: fc.nat(255), payload: fc.uint8Array({ maxLength: 100 }) });
  await fc.assert(
    fc.asyncProperty(fc.array(frame), fc.integer({ min: 1, max: 50 }), async (frames, size) => {
      const bytes = Buffer.concat(frames.map(({ type, payload }) => encodeFrame(type, payload)));
      const found = [];
      for await (const { type, payload } of framesOf(inPieces(bytes, size), 1_000))
        found.push({ type, payload: new Uint8Array(payload) });
      expect(found).toEqual(frames);
    }),
  );
});

it('a body that ends inside of a frame is a lost connection', async () => {
  const bytes = encodeFrame(frameType.stdout, new Uint8Array(20));
  for (let end = 1; end < bytes.length; end++) {
    const read = async () => {
      for await (const _ of framesOf(inPieces(bytes.subarray(0, end), 5), 1_000));
    };
    await expect(read()).rejects.toBeInstanceOf(FuseConnectionError);
  }
});

it('a log of random bytes is items or a typed error, and ends', async () => {
  const headed = fc
    .tuple(fc.nat(20), fc.uint8Array({ maxLength: 60 }))
    .map(([type, payload]) => encodeFrame(type, payload));
  const body = fc.array(fc.oneof(headed, fc.uint8Array({ maxLength: 2 * FRAME_HEADER_BYTES })), { maxLength: 6 });
  await fc.assert(
    fc.asyncProperty(body, async (parts) => {
      const bytes = Buffer.concat(parts);
      const client = new FuseClient({
        baseUrl: 'http://nowhere.test',
        retries: 0,
        random: () => 0,
        fetch: (url) =>
          Promise.resolve(
            url.pathname.endsWith('/log')
              ? new Response(bytes, { headers: { 'Fuse-Log-Offset': '0' } })
              : new Response('{"error":{"code":"not_found","message":"gone"}}', { status: 404 }),
          ),
      });
      try {
        const options = { follow: true, patienceMs: 0 };
        for await (const item of client.environments.execs.log('e', 'x', options)) expect(item.next).toBeGreaterThan(0);
      } catch (error) {
        expect(error, String(error)).toBeInstanceOf(FuseError);
      }
    }),
  );
});

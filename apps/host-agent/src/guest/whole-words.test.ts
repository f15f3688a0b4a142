import { PassThrough, Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { wholeWords } from './whole-words.ts';

const bytesOf = (length: number) => Uint8Array.from({ length }, (_, index) => index * 31);

it('is the same bytes, and large pieces end at whole words but for the last', async () => {
  const lengths = fc.array(fc.oneof(fc.integer({ min: 1, max: 40 }), fc.integer({ min: 16_384, max: 70_000 })), {
    maxLength: 12,
  });
  await fc.assert(
    fc.asyncProperty(lengths, async (all) => {
      const sent = all.map(bytesOf);
      const got: Uint8Array[] = [];
      let at = 0;
      for await (const piece of wholeWords(Readable.from(sent))) {
        expect(piece.length).toBeGreaterThan(0);
        got.push(piece);
        at += piece.length;
        if (piece.length >= 16_384 && at < all.reduce((sum, each) => sum + each, 0)) expect(at % 8).toBe(0);
      }
      expect(Buffer.concat(got).equals(Buffer.concat(sent))).toBe(true);
    }),
    { numRuns: 100 },
  );
});

it('holds back nothing for long, and small pieces not at all', async () => {
  const body = new PassThrough();
  const pieces = wholeWords(body);
  body.write(bytesOf(3));
  expect((await pieces.next()).value?.length).toBe(3);
  body.write(bytesOf(20_001));
  expect((await pieces.next()).value?.length).toBe(19_997);
  expect((await pieces.next()).value?.length).toBe(4);
  body.end();
  expect((await pieces.next()).done).toBe(true);
});

it('ends its source when it is left, and fails as its source does', async () => {
  const body = new PassThrough();
  body.write(bytesOf(5));
  for await (const piece of wholeWords(body)) {
    expect(piece.length).toBe(5);
    break;
  }
  expect(body.destroyed).toBe(true);
  const failing = new PassThrough();
  const pieces = wholeWords(failing);
  failing.write(bytesOf(20_001));
  await pieces.next();
  void delay(1).then(() => failing.destroy(new Error('cut')));
  await expect(async () => {
    while (!(await pieces.next()).done);
  }).rejects.toThrow('cut');
});

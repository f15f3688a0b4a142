import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { drain, patternBytes, patternSha256, patternStream } from '../pattern.fixture.ts';
import { collect, type Given, KIB, MIB, SLOW_MS } from './given.ts';

const SIZES = [0, 1, 4 * KIB - 1, 4 * KIB, 4 * KIB + 1];
const LARGE_SIZES = [
  5 * MIB - 1,
  5 * MIB,
  5 * MIB + 1,
  8 * MIB - 1,
  8 * MIB,
  8 * MIB + 1,
  16 * MIB,
  32 * MIB,
  100 * MIB,
];

export function describePuts(given: Given): void {
  describe('put and get', () => {
    it.each(SIZES)('gives back a stream of %i bytes', async (sizeBytes) => {
      await roundTrip(sizeBytes);
    });
    it.each(LARGE_SIZES)('gives back a large stream of %i bytes', (sizeBytes) => roundTrip(sizeBytes), SLOW_MS);

    async function roundTrip(sizeBytes: number): Promise<void> {
      const sha256 = patternSha256(sizeBytes);
      const expected = { key: 't/a.bin', sizeBytes, sha256, contentType: 'application/octet-stream' };
      expect(await given.store.put('t/a.bin', patternStream(sizeBytes))).toEqual(expected);
      expect(await given.store.head('t/a.bin')).toEqual(expected);
      const { info, body } = await given.store.get('t/a.bin');
      expect(info).toEqual(expected);
      expect(await drain(body)).toEqual({ sizeBytes, sha256 });
      expect(await collect(given.store.list('t'))).toEqual([{ key: 't/a.bin', sizeBytes }]);
    }

    it.each([0, 10, 9 * MIB])('takes %i bytes from memory', async (sizeBytes) => {
      const bytes = patternBytes(sizeBytes);
      const info = await given.store.put('t/memory', bytes, { expectedSha256: patternSha256(sizeBytes) });
      expect(info.sizeBytes).toBe(sizeBytes);
      expect((await buffer((await given.store.get('t/memory')).body)).equals(bytes)).toBe(true);
    });

    it('takes a stream in chunks of any size, strings too', async () => {
      await given.store.put('t/strings', Readable.from(['grü', '', 'ße', Buffer.from('!')]));
      expect(await given.text('t/strings')).toBe('grüße!');
    });

    it.each(['text/plain; charset=utf-8', 'text/plain; name="naïve ☃ 文件.txt"', `x/${'"'.repeat(253)}`])(
      'keeps the content type %s',
      async (contentType) => {
        await given.store.put('t/typed', Buffer.from('x'), { contentType });
        await given.store.put('t/typed-large', patternStream(9 * MIB), { contentType });
        expect((await given.store.head('t/typed')).contentType).toBe(contentType);
        expect((await given.store.head('t/typed-large')).contentType).toBe(contentType);
      },
    );

    it.each(['', 'a\r\nx-evil: 1', 'a\0b', 'x'.repeat(256), '\ud800'])(
      'refuses the content type %j',
      async (contentType) => {
        const put = given.store.put('t/typed', Buffer.from('x'), { contentType });
        await expect(put).rejects.toMatchObject({ code: 'invalid_argument', details: { field: 'contentType' } });
      },
    );

    it('replaces an object whole', async () => {
      await given.store.put('t/a', patternStream(9 * MIB), { contentType: 'a/a' });
      await given.store.put('t/a', Buffer.from('second'), { contentType: 'b/b' });
      expect(await given.store.head('t/a')).toMatchObject({ sizeBytes: 6, contentType: 'b/b' });
      expect(await given.text('t/a')).toBe('second');
      await given.store.put('t/a', patternStream(10 * MIB, 3));
      expect(await drain((await given.store.get('t/a')).body)).toEqual({
        sizeBytes: 10 * MIB,
        sha256: patternSha256(10 * MIB, 3),
      });
    });

    it('lets the last of two puts at once win whole', async () => {
      for (const sizeBytes of [100 * KIB, 9 * MIB]) {
        const infos = await Promise.all(
          [1, 2, 3].map((seed) => given.store.put('t/race', patternStream(sizeBytes + seed, seed))),
        );
        const { info, body } = await given.store.get('t/race');
        expect(infos).toContainEqual(info);
        expect(await drain(body)).toEqual({ sizeBytes: info.sizeBytes, sha256: info.sha256 });
      }
    });

    it(
      'gives a reader a whole object, old or new, while it is replaced and deleted',
      async () => {
        let writing = true;
        const write = async () => {
          for (let seed = 1; seed <= 12; seed += 1) {
            await given.store.put('t/busy', patternStream(seed % 3 === 0 ? 9 * MIB : 300 * KIB, seed));
            if (seed % 4 === 0) await given.store.delete('t/busy');
          }
          writing = false;
        };
        const read = async () => {
          while (writing) {
            const found = await given.store.get('t/busy').catch((error) => {
              expect(error).toMatchObject({ code: 'not_found' });
            });
            if (found === undefined) continue;
            expect(await drain(found.body)).toEqual({ sizeBytes: found.info.sizeBytes, sha256: found.info.sha256 });
          }
        };
        await Promise.all([write(), read(), read()]);
      },
      SLOW_MS,
    );

    it(
      'takes 50 puts at once',
      async () => {
        const keys = Array.from({ length: 50 }, (_, index) => `t/many/${index}`);
        await Promise.all(keys.map((key, index) => given.store.put(key, patternStream(index * 10_007, index))));
        const sums = await Promise.all(
          keys.map(async (key) => (await drain((await given.store.get(key)).body)).sha256),
        );
        expect(sums).toEqual(keys.map((_, index) => patternSha256(index * 10_007, index)));
      },
      SLOW_MS,
    );
  });
}

import { describe, expect, it } from 'vitest';
import { patternBytes, patternStream } from '../pattern.fixture.ts';
import { collect, type Given, MIB, SLOW_MS } from './given.ts';

export function describeKeys(given: Given): void {
  describe('a key', () => {
    const bad = [
      '',
      '/',
      'a/',
      '/a',
      'a//b',
      '.',
      '..',
      'a/../b',
      'a/./b',
      'a b',
      'a\\b',
      'ä',
      'a\0',
      'a\n',
      '%2e',
      `${'x'.repeat(201)}`,
    ];
    it.each([...bad, `${'x/'.repeat(400)}x`])('is refused when it is %j', async (key) => {
      const refusal = { code: 'invalid_argument', details: { field: 'key' } };
      const source = patternStream(10);
      await expect(given.store.put(key, source)).rejects.toMatchObject(refusal);
      expect(source.destroyed).toBe(true);
      await expect(given.store.get(key)).rejects.toMatchObject(refusal);
      await expect(given.store.head(key)).rejects.toMatchObject(refusal);
      await expect(given.store.delete(key)).rejects.toMatchObject(refusal);
    });

    it('may hold dots, dashes and underscores, and be long', async () => {
      const keys = ['t/...', 't/.hidden', 't/-', 't/_', 't/A.b-C_d', `t/${'y'.repeat(200)}`, `t/${'z/'.repeat(398)}z`];
      for (const key of keys) {
        await given.store.put(key, Buffer.from(key));
        expect(await given.text(key)).toBe(key);
      }
    });

    it('is not found when nothing, or only a folder, is there', async () => {
      await given.store.put('t/folder/a', Buffer.from('x'));
      for (const key of ['t/none', 't/folder', 't/folder/a/b', 't/none/none']) {
        await expect(given.store.get(key)).rejects.toMatchObject({ code: 'not_found' });
        await expect(given.store.head(key)).rejects.toMatchObject({ code: 'not_found' });
        expect(await given.store.delete(key)).toBe(false);
      }
    });
  });

  describe('list and delete', () => {
    it('lists below a prefix only, in the order of the bytes of keys', async () => {
      const keys = ['t/b', 't/a-b', 't/a/x', 't/a/y/z', 't/a.b', 't/a0', 't/B', 't/_', 'tt/x', 'u/x'];
      await Promise.all(keys.map((key, index) => given.store.put(key, patternBytes(index + 1))));
      const listed = await collect(given.store.list('t'));
      const sorted = keys.filter((key) => key.startsWith('t/')).sort();
      expect(listed.map(({ key }) => key)).toEqual(sorted);
      expect(listed.map(({ sizeBytes }) => sizeBytes)).toEqual(sorted.map((key) => keys.indexOf(key) + 1));
      expect((await collect(given.store.list(''))).map(({ key }) => key)).toEqual([...keys].sort());
      expect(await collect(given.store.list('t/a'))).toHaveLength(2);
      expect(await collect(given.store.list('none'))).toEqual([]);
      expect(await collect(given.store.list('t/b'))).toEqual([]);
      expect(await given.store.deletePrefix('tt')).toEqual({ objects: 1, bytes: 9 });
    });

    it(
      'pages through more than a thousand and deletes them all',
      async () => {
        const keys = Array.from({ length: 1_203 }, (_, index) => `t/n/${String(index).padStart(4, '0')}`);
        for (let at = 0; at < keys.length; at += 50)
          await Promise.all(keys.slice(at, at + 50).map((key) => given.store.put(key, Buffer.from('12'))));
        expect((await collect(given.store.list('t'))).map(({ key }) => key)).toEqual(keys);
        expect(await given.store.deletePrefix('t/n')).toEqual({ objects: 1_203, bytes: 2_406 });
        expect(await collect(given.store.list('t'))).toEqual([]);
      },
      SLOW_MS,
    );

    it('can stop listing early', async () => {
      await given.store.put('t/1', Buffer.from('1'));
      await given.store.put('t/2', Buffer.from('2'));
      for await (const { key } of given.store.list('t')) {
        expect(key).toBe('t/1');
        break;
      }
    });

    it('tells whether something was there', async () => {
      await given.store.put('t/x', Buffer.from('x'));
      expect(await given.store.delete('t/x')).toBe(true);
      expect(await given.store.delete('t/x')).toBe(false);
      expect(await given.store.deletePrefix('t')).toEqual({ objects: 0, bytes: 0 });
    });

    it('deletes a large object without a trace', async () => {
      await given.store.put('t/x', patternStream(9 * MIB));
      expect(await given.store.delete('t/x')).toBe(true);
      expect(await given.under.remains()).toEqual([]);
    });

    it('never takes an empty or unclean prefix for a deletion', async () => {
      for (const prefix of ['', '.', '..', 't/', '/', 't/../u'])
        await expect(given.store.deletePrefix(prefix)).rejects.toMatchObject({ code: 'invalid_argument' });
    });

    it(
      'survives puts and deletes in the same folders at once',
      async () => {
        const work = async (worker: number) => {
          for (let round = 0; round < 30; round += 1) {
            const key = `t/deep/${round % 3}/er/${worker}`;
            await given.store.put(key, Buffer.from(key));
            expect(await given.text(key)).toBe(key);
            expect(await given.store.delete(key)).toBe(true);
          }
        };
        await Promise.all([1, 2, 3, 4, 5, 6].map(work));
        expect(await collect(given.store.list('t'))).toEqual([]);
      },
      SLOW_MS,
    );
  });
}

import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { beforeEach, describe, expect, it } from 'vitest';
import { drain, patternBytes, patternStream } from '../pattern.fixture.ts';
import { type Given, MIB } from './given.ts';

export function describeReads(given: Given): void {
  describe('a range', () => {
    const content = Buffer.from('0123456789');
    const part = async (start: number, end?: number) => {
      const range = end === undefined ? { start } : { start, end };
      const { info, body } = await given.store.get('t/r', { range });
      expect(info.sizeBytes).toBe(10);
      return String(await buffer(body));
    };
    beforeEach(() => given.store.put('t/r', content));

    it('gives its bytes, and no more than there are', async () => {
      expect(await part(0)).toBe('0123456789');
      expect(await part(3)).toBe('3456789');
      expect(await part(0, 1)).toBe('0');
      expect(await part(2, 5)).toBe('234');
      expect(await part(9, 10)).toBe('9');
      expect(await part(5, 1_000)).toBe('56789');
      expect(await part(0, 1_000)).toBe('0123456789');
    });

    it('may be empty, at the end too', async () => {
      expect(await part(10)).toBe('');
      expect(await part(10, 20)).toBe('');
      expect(await part(4, 4)).toBe('');
      await given.store.put('t/r0', Buffer.alloc(0));
      expect(await buffer((await given.store.get('t/r0', { range: { start: 0, end: 5 } })).body)).toHaveLength(0);
    });

    it.each([[11], [11, 20], [-1], [5, 4], [0.5], [Number.NaN], [0, Number.POSITIVE_INFINITY]])(
      'is refused from %d to %d',
      async (start, end?: number) => {
        await expect(part(start, end)).rejects.toMatchObject({
          code: 'invalid_argument',
          details: { field: 'range' },
        });
      },
    );

    it('crosses the parts of a large object', async () => {
      const whole = patternBytes(17 * MIB);
      await given.store.put('t/large', Readable.from(patternStream(17 * MIB)));
      const range = { start: 8 * MIB - 5, end: 16 * MIB + 5 };
      const bytes = await buffer((await given.store.get('t/large', { range })).body);
      expect(bytes.equals(whole.subarray(range.start, range.end))).toBe(true);
    });
  });

  describe('damage', () => {
    it.each([
      [10, 0],
      [10, 9],
      [9 * MIB, 5],
      [9 * MIB, 9 * MIB - 1],
    ])('of one byte in %i, at %i, is found before the end', async (sizeBytes, offset) => {
      await given.store.put('t/d', patternStream(sizeBytes));
      await given.under.damage('t/d', offset);
      const { body } = await given.store.get('t/d');
      const read = await drain(body);
      expect(read.error).toMatchObject({ code: 'integrity_error' });
      expect(read.sizeBytes).toBeLessThan(sizeBytes);
    });
  });

  describe('a get', () => {
    it('can be aborted in the middle', async () => {
      await given.store.put('t/g', patternStream(32 * MIB));
      const controller = new AbortController();
      const { body } = await given.store.get('t/g', { signal: controller.signal });
      body.once('data', () => controller.abort());
      const read = await drain(body);
      expect(read.error).toMatchObject({ name: 'AbortError' });
      expect(read.sizeBytes).toBeLessThan(32 * MIB);
      await expect(given.store.get('t/g', { signal: AbortSignal.abort(new Error('over')) })).rejects.toThrow('over');
    });

    it('can be left unread', async () => {
      await given.store.put('t/g', patternStream(9 * MIB));
      const { body } = await given.store.get('t/g');
      body.destroy();
      const part = await given.store.get('t/g', { range: { start: 1, end: 8 * MIB } });
      part.body.destroy();
    });
  });
}

/** What every adapter promises. Each runs it against the real thing behind it. */
import { PassThrough, Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { expectNoLeaks, type ResourceSnapshot, resourceSnapshot } from '@fuse/testing';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { ObjectStore } from './object-store.ts';
import { drain, patternBlocks, patternBytes, patternSha256, patternStream } from './pattern.fixture.ts';

export interface StoreUnderTest extends AsyncDisposable {
  store: ObjectStore;
  /** Everything that the store keeps behind its back: objects, temporary files, parts of uploads. */
  remains(): Promise<string[]>;
  /** Open connections between operations are no leak, only after the store is disposed of. */
  keepsConnections: boolean;
  /** Flips one byte of the stored object, leaving its metadata alone. */
  damage(key: string, offset: number): Promise<void>;
}

const KIB = 1024;
const MIB = 1024 * KIB;
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
const SLOW_MS = 60_000;
/** The first test that needs the S3 server may have to build it. */
const SERVER_BUILD_MS = 600_000;

/** A source that gives `sizeBytes` and then neither more nor an end; `stalled` resolves when more was asked for. */
function stalledStream(sizeBytes: number): { source: Readable; stalled: Promise<void> } {
  const blocks = patternBlocks(sizeBytes);
  let tell = () => {};
  const stalled = new Promise<void>((resolve) => {
    tell = resolve;
  });
  const source = new Readable({
    read() {
      const { value, done } = blocks.next();
      if (done === true) tell();
      else this.push(value);
    },
  });
  return { source, stalled };
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

function failingStream(sizeBytes: number, error: Error): Readable {
  return Readable.from(
    (async function* () {
      yield* patternStream(sizeBytes);
      throw error;
    })(),
    { objectMode: false },
  );
}

export function describeObjectStore(name: string, open: () => Promise<StoreUnderTest>): void {
  describe(`object store: ${name}`, () => {
    let under: StoreUnderTest;
    let store: ObjectStore;
    let beforeAnything: ResourceSnapshot;
    let before: ResourceSnapshot;
    beforeAll(async () => {
      beforeAnything = await resourceSnapshot();
      under = await open();
      store = under.store;
      await store.check();
    }, SERVER_BUILD_MS);
    afterAll(async () => {
      await under[Symbol.asyncDispose]();
      await expectNoLeaks(beforeAnything);
    });
    beforeEach(async () => {
      before = await resourceSnapshot();
    });
    afterEach(async () => {
      for (const prefix of ['t', 'u']) await store.deletePrefix(prefix);
      expect(await under.remains()).toEqual([]);
      if (!under.keepsConnections) await expectNoLeaks(before);
    }, SLOW_MS);

    const text = async (key: string) => String(await buffer((await store.get(key)).body));

    describe('put and get', () => {
      it.each(SIZES)('gives back a stream of %i bytes', async (sizeBytes) => {
        await roundTrip(sizeBytes);
      });
      it.each(LARGE_SIZES)('gives back a large stream of %i bytes', (sizeBytes) => roundTrip(sizeBytes), SLOW_MS);

      async function roundTrip(sizeBytes: number): Promise<void> {
        const sha256 = patternSha256(sizeBytes);
        const expected = { key: 't/a.bin', sizeBytes, sha256, contentType: 'application/octet-stream' };
        expect(await store.put('t/a.bin', patternStream(sizeBytes))).toEqual(expected);
        expect(await store.head('t/a.bin')).toEqual(expected);
        const { info, body } = await store.get('t/a.bin');
        expect(info).toEqual(expected);
        expect(await drain(body)).toEqual({ sizeBytes, sha256 });
        expect(await collect(store.list('t'))).toEqual([{ key: 't/a.bin', sizeBytes }]);
      }

      it.each([0, 10, 9 * MIB])('takes %i bytes from memory', async (sizeBytes) => {
        const bytes = patternBytes(sizeBytes);
        const info = await store.put('t/memory', bytes, { expectedSha256: patternSha256(sizeBytes) });
        expect(info.sizeBytes).toBe(sizeBytes);
        expect((await buffer((await store.get('t/memory')).body)).equals(bytes)).toBe(true);
      });

      it('takes a stream in chunks of any size, strings too', async () => {
        await store.put('t/strings', Readable.from(['grü', '', 'ße', Buffer.from('!')]));
        expect(await text('t/strings')).toBe('grüße!');
      });

      it.each(['text/plain; charset=utf-8', 'text/plain; name="naïve ☃ 文件.txt"', `x/${'"'.repeat(253)}`])(
        'keeps the content type %s',
        async (contentType) => {
          await store.put('t/typed', Buffer.from('x'), { contentType });
          await store.put('t/typed-large', patternStream(9 * MIB), { contentType });
          expect((await store.head('t/typed')).contentType).toBe(contentType);
          expect((await store.head('t/typed-large')).contentType).toBe(contentType);
        },
      );

      it.each(['', 'a\r\nx-evil: 1', 'a\0b', 'x'.repeat(256), '\ud800'])(
        'refuses the content type %j',
        async (contentType) => {
          const put = store.put('t/typed', Buffer.from('x'), { contentType });
          await expect(put).rejects.toMatchObject({ code: 'invalid_argument', details: { field: 'contentType' } });
        },
      );

      it('replaces an object whole', async () => {
        await store.put('t/a', patternStream(9 * MIB), { contentType: 'a/a' });
        await store.put('t/a', Buffer.from('second'), { contentType: 'b/b' });
        expect(await store.head('t/a')).toMatchObject({ sizeBytes: 6, contentType: 'b/b' });
        expect(await text('t/a')).toBe('second');
        await store.put('t/a', patternStream(10 * MIB, 3));
        expect(await drain((await store.get('t/a')).body)).toEqual({
          sizeBytes: 10 * MIB,
          sha256: patternSha256(10 * MIB, 3),
        });
      });

      it('lets the last of two puts at once win whole', async () => {
        for (const sizeBytes of [100 * KIB, 9 * MIB]) {
          const infos = await Promise.all(
            [1, 2, 3].map((seed) => store.put('t/race', patternStream(sizeBytes + seed, seed))),
          );
          const { info, body } = await store.get('t/race');
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
              await store.put('t/busy', patternStream(seed % 3 === 0 ? 9 * MIB : 300 * KIB, seed));
              if (seed % 4 === 0) await store.delete('t/busy');
            }
            writing = false;
          };
          const read = async () => {
            while (writing) {
              const found = await store.get('t/busy').catch((error) => {
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
          await Promise.all(keys.map((key, index) => store.put(key, patternStream(index * 10_007, index))));
          const sums = await Promise.all(keys.map(async (key) => (await drain((await store.get(key)).body)).sha256));
          expect(sums).toEqual(keys.map((_, index) => patternSha256(index * 10_007, index)));
        },
        SLOW_MS,
      );
    });

    describe('a put that fails', () => {
      const leavesNothing = async () => {
        expect(await under.remains()).toEqual([]);
        await expect(store.head('t/f')).rejects.toMatchObject({ code: 'not_found' });
      };

      it.each([0, 100, 9 * MIB, 40 * MIB])('leaves nothing when its source fails after %i bytes', async (sizeBytes) => {
        const error = new Error('the source broke');
        await expect(store.put('t/f', failingStream(sizeBytes, error))).rejects.toBe(error);
        await leavesNothing();
      });

      it('leaves nothing when its source is cut without an error', async () => {
        const { source, stalled } = stalledStream(1000);
        const put = store.put('t/f', source);
        put.catch(() => {});
        await stalled;
        source.destroy();
        await expect(put).rejects.toMatchObject({ code: 'ERR_STREAM_PREMATURE_CLOSE' });
        await leavesNothing();
      });

      it('leaves nothing when its source had failed before', async () => {
        const source = new PassThrough();
        const put = store.put('t/f', source);
        source.destroy(new Error('early'));
        await expect(put).rejects.toThrow('early');
        await leavesNothing();
      });

      it.each([0, 100, 9 * MIB, 40 * MIB])('leaves nothing when aborted after %i bytes', async (sizeBytes) => {
        const controller = new AbortController();
        const { source, stalled } = stalledStream(sizeBytes);
        const put = store.put('t/f', source, { signal: controller.signal });
        put.catch(() => {});
        await stalled;
        const reason = new Error('no longer wanted');
        controller.abort(reason);
        await expect(put).rejects.toBe(reason);
        expect(source.destroyed).toBe(true);
        await leavesNothing();
      });

      it('does not wait for a source that does not notice its end', async () => {
        const controller = new AbortController();
        let asked = () => {};
        const waiting = new Promise<void>((resolve) => {
          asked = resolve;
        });
        const deaf = async function* () {
          yield 'x';
          asked();
          await new Promise(() => {});
        };
        const put = store.put('t/f', Readable.from(deaf()), { signal: controller.signal });
        put.catch(() => {});
        await waiting;
        controller.abort(new Error('over'));
        await expect(put).rejects.toThrow('over');
        await leavesNothing();
      });

      it('does not begin with a signal that is aborted already', async () => {
        const source = patternStream(10);
        const put = store.put('t/f', source, { signal: AbortSignal.abort(new Error('over')) });
        await expect(put).rejects.toThrow('over');
        expect(source.destroyed).toBe(true);
        await leavesNothing();
      });

      it.each([10, 9 * MIB])('refuses %i bytes that do not have the expected sum', async (sizeBytes) => {
        const put = store.put('t/f', patternStream(sizeBytes), { expectedSha256: patternSha256(sizeBytes, 2) });
        await expect(put).rejects.toMatchObject({ code: 'integrity_error' });
        await leavesNothing();
      });

      it('takes a large stream of the expected sum', async () => {
        const options = { expectedSha256: patternSha256(9 * MIB) };
        expect((await store.put('t/sum', patternStream(9 * MIB), options)).sha256).toBe(options.expectedSha256);
        expect((await drain((await store.get('t/sum')).body)).sha256).toBe(options.expectedSha256);
      });

      it.each([0, 10, 9 * MIB])(
        'refuses what is over a limit of %i bytes and takes what meets it',
        async (maxBytes) => {
          const { source } = stalledStream(maxBytes + 1);
          await expect(store.put('t/f', source, { maxBytes })).rejects.toMatchObject({ code: 'payload_too_large' });
          expect(source.destroyed).toBe(true);
          await leavesNothing();
          expect((await store.put('t/f', patternStream(maxBytes), { maxBytes })).sizeBytes).toBe(maxBytes);
        },
      );

      it('leaves the object that was there before', async () => {
        await store.put('t/kept', Buffer.from('first'));
        await expect(store.put('t/kept', failingStream(9 * MIB, new Error('broke')))).rejects.toThrow('broke');
        await expect(store.put('t/kept', Buffer.from('x'), { maxBytes: 0 })).rejects.toThrow('larger than 0 bytes');
        expect(await text('t/kept')).toBe('first');
      });
    });

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
        await expect(store.put(key, source)).rejects.toMatchObject(refusal);
        expect(source.destroyed).toBe(true);
        await expect(store.get(key)).rejects.toMatchObject(refusal);
        await expect(store.head(key)).rejects.toMatchObject(refusal);
        await expect(store.delete(key)).rejects.toMatchObject(refusal);
      });

      it('may hold dots, dashes and underscores, and be long', async () => {
        const keys = [
          't/...',
          't/.hidden',
          't/-',
          't/_',
          't/A.b-C_d',
          `t/${'y'.repeat(200)}`,
          `t/${'z/'.repeat(398)}z`,
        ];
        for (const key of keys) {
          await store.put(key, Buffer.from(key));
          expect(await text(key)).toBe(key);
        }
      });

      it('is not found when nothing, or only a folder, is there', async () => {
        await store.put('t/folder/a', Buffer.from('x'));
        for (const key of ['t/none', 't/folder', 't/folder/a/b', 't/none/none']) {
          await expect(store.get(key)).rejects.toMatchObject({ code: 'not_found' });
          await expect(store.head(key)).rejects.toMatchObject({ code: 'not_found' });
          expect(await store.delete(key)).toBe(false);
        }
      });
    });

    describe('a range', () => {
      const content = Buffer.from('0123456789');
      const part = async (start: number, end?: number) => {
        const range = end === undefined ? { start } : { start, end };
        const { info, body } = await store.get('t/r', { range });
        expect(info.sizeBytes).toBe(10);
        return String(await buffer(body));
      };
      beforeEach(() => store.put('t/r', content));

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
        await store.put('t/r0', Buffer.alloc(0));
        expect(await buffer((await store.get('t/r0', { range: { start: 0, end: 5 } })).body)).toHaveLength(0);
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
        await store.put('t/large', Readable.from(patternStream(17 * MIB)));
        const range = { start: 8 * MIB - 5, end: 16 * MIB + 5 };
        const bytes = await buffer((await store.get('t/large', { range })).body);
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
        await store.put('t/d', patternStream(sizeBytes));
        await under.damage('t/d', offset);
        const { body } = await store.get('t/d');
        const read = await drain(body);
        expect(read.error).toMatchObject({ code: 'integrity_error' });
        expect(read.sizeBytes).toBeLessThan(sizeBytes);
      });
    });

    describe('a get', () => {
      it('can be aborted in the middle', async () => {
        await store.put('t/g', patternStream(32 * MIB));
        const controller = new AbortController();
        const { body } = await store.get('t/g', { signal: controller.signal });
        body.once('data', () => controller.abort());
        const read = await drain(body);
        expect(read.error).toMatchObject({ name: 'AbortError' });
        expect(read.sizeBytes).toBeLessThan(32 * MIB);
        await expect(store.get('t/g', { signal: AbortSignal.abort(new Error('over')) })).rejects.toThrow('over');
      });

      it('can be left unread', async () => {
        await store.put('t/g', patternStream(9 * MIB));
        const { body } = await store.get('t/g');
        body.destroy();
        const part = await store.get('t/g', { range: { start: 1, end: 8 * MIB } });
        part.body.destroy();
      });
    });

    describe('list and delete', () => {
      it('lists below a prefix only, in the order of the bytes of keys', async () => {
        const keys = ['t/b', 't/a-b', 't/a/x', 't/a/y/z', 't/a.b', 't/a0', 't/B', 't/_', 'tt/x', 'u/x'];
        await Promise.all(keys.map((key, index) => store.put(key, patternBytes(index + 1))));
        const listed = await collect(store.list('t'));
        const sorted = keys.filter((key) => key.startsWith('t/')).sort();
        expect(listed.map(({ key }) => key)).toEqual(sorted);
        expect(listed.map(({ sizeBytes }) => sizeBytes)).toEqual(sorted.map((key) => keys.indexOf(key) + 1));
        expect((await collect(store.list(''))).map(({ key }) => key)).toEqual([...keys].sort());
        expect(await collect(store.list('t/a'))).toHaveLength(2);
        expect(await collect(store.list('none'))).toEqual([]);
        expect(await collect(store.list('t/b'))).toEqual([]);
        expect(await store.deletePrefix('tt')).toEqual({ objects: 1, bytes: 9 });
      });

      it(
        'pages through more than a thousand and deletes them all',
        async () => {
          const keys = Array.from({ length: 1_203 }, (_, index) => `t/n/${String(index).padStart(4, '0')}`);
          for (let at = 0; at < keys.length; at += 50)
            await Promise.all(keys.slice(at, at + 50).map((key) => store.put(key, Buffer.from('12'))));
          expect((await collect(store.list('t'))).map(({ key }) => key)).toEqual(keys);
          expect(await store.deletePrefix('t/n')).toEqual({ objects: 1_203, bytes: 2_406 });
          expect(await collect(store.list('t'))).toEqual([]);
        },
        SLOW_MS,
      );

      it('can stop listing early', async () => {
        await store.put('t/1', Buffer.from('1'));
        await store.put('t/2', Buffer.from('2'));
        for await (const { key } of store.list('t')) {
          expect(key).toBe('t/1');
          break;
        }
      });

      it('tells whether something was there', async () => {
        await store.put('t/x', Buffer.from('x'));
        expect(await store.delete('t/x')).toBe(true);
        expect(await store.delete('t/x')).toBe(false);
        expect(await store.deletePrefix('t')).toEqual({ objects: 0, bytes: 0 });
      });

      it('deletes a large object without a trace', async () => {
        await store.put('t/x', patternStream(9 * MIB));
        expect(await store.delete('t/x')).toBe(true);
        expect(await under.remains()).toEqual([]);
      });

      it('never takes an empty or unclean prefix for a deletion', async () => {
        for (const prefix of ['', '.', '..', 't/', '/', 't/../u'])
          await expect(store.deletePrefix(prefix)).rejects.toMatchObject({ code: 'invalid_argument' });
      });

      it(
        'survives puts and deletes in the same folders at once',
        async () => {
          const work = async (worker: number) => {
            for (let round = 0; round < 30; round += 1) {
              const key = `t/deep/${round % 3}/er/${worker}`;
              await store.put(key, Buffer.from(key));
              expect(await text(key)).toBe(key);
              expect(await store.delete(key)).toBe(true);
            }
          };
          await Promise.all([1, 2, 3, 4, 5, 6].map(work));
          expect(await collect(store.list('t'))).toEqual([]);
        },
        SLOW_MS,
      );
    });
  });
}

import { PassThrough, Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { drain, patternSha256, patternStream } from '../pattern.fixture.ts';
import { type Given, MIB } from './given.ts';
import { failingStream, stalledStream } from './sources.ts';

export function describeFailingPuts(given: Given): void {
  describe('a put that fails', () => {
    const leavesNothing = async () => {
      expect(await given.under.remains()).toEqual([]);
      await expect(given.store.head('t/f')).rejects.toMatchObject({ code: 'not_found' });
    };

    it.each([0, 100, 9 * MIB, 40 * MIB])('leaves nothing when its source fails after %i bytes', async (sizeBytes) => {
      const error = new Error('the source broke');
      await expect(given.store.put('t/f', failingStream(sizeBytes, error))).rejects.toBe(error);
      await leavesNothing();
    });

    it('leaves nothing when its source is cut without an error', async () => {
      const { source, stalled } = stalledStream(1000);
      const put = given.store.put('t/f', source);
      put.catch(() => {});
      await stalled;
      source.destroy();
      await expect(put).rejects.toMatchObject({ code: 'ERR_STREAM_PREMATURE_CLOSE' });
      await leavesNothing();
    });

    it('leaves nothing when its source had failed before', async () => {
      const source = new PassThrough();
      const put = given.store.put('t/f', source);
      source.destroy(new Error('early'));
      await expect(put).rejects.toThrow('early');
      await leavesNothing();
    });

    it.each([0, 100, 9 * MIB, 40 * MIB])('leaves nothing when aborted after %i bytes', async (sizeBytes) => {
      const controller = new AbortController();
      const { source, stalled } = stalledStream(sizeBytes);
      const put = given.store.put('t/f', source, { signal: controller.signal });
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
      const put = given.store.put('t/f', Readable.from(deaf()), { signal: controller.signal });
      put.catch(() => {});
      await waiting;
      controller.abort(new Error('over'));
      await expect(put).rejects.toThrow('over');
      await leavesNothing();
    });

    it('does not begin with a signal that is aborted already', async () => {
      const source = patternStream(10);
      const put = given.store.put('t/f', source, { signal: AbortSignal.abort(new Error('over')) });
      await expect(put).rejects.toThrow('over');
      expect(source.destroyed).toBe(true);
      await leavesNothing();
    });

    it.each([10, 9 * MIB])('refuses %i bytes that do not have the expected sum', async (sizeBytes) => {
      const put = given.store.put('t/f', patternStream(sizeBytes), { expectedSha256: patternSha256(sizeBytes, 2) });
      await expect(put).rejects.toMatchObject({ code: 'integrity_error' });
      await leavesNothing();
    });

    it('takes a large stream of the expected sum', async () => {
      const options = { expectedSha256: patternSha256(9 * MIB) };
      expect((await given.store.put('t/sum', patternStream(9 * MIB), options)).sha256).toBe(options.expectedSha256);
      expect((await drain((await given.store.get('t/sum')).body)).sha256).toBe(options.expectedSha256);
    });

    it.each([0, 10, 9 * MIB])('refuses what is over a limit of %i bytes and takes what meets it', async (maxBytes) => {
      const { source } = stalledStream(maxBytes + 1);
      await expect(given.store.put('t/f', source, { maxBytes })).rejects.toMatchObject({ code: 'payload_too_large' });
      expect(source.destroyed).toBe(true);
      await leavesNothing();
      expect((await given.store.put('t/f', patternStream(maxBytes), { maxBytes })).sizeBytes).toBe(maxBytes);
    });

    it('leaves the object that was there before', async () => {
      await given.store.put('t/kept', Buffer.from('first'));
      await expect(given.store.put('t/kept', failingStream(9 * MIB, new Error('broke')))).rejects.toThrow('broke');
      await expect(given.store.put('t/kept', Buffer.from('x'), { maxBytes: 0 })).rejects.toThrow('larger than 0 bytes');
      expect(await given.text('t/kept')).toBe('first');
    });
  });
}

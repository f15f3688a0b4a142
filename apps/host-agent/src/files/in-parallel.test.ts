import { sleep } from '@fuse/runtime';
import { describe, expect, it } from 'vitest';
import { inParallel } from './in-parallel.ts';

const never = new AbortController().signal;

describe('inParallel', () => {
  it('keeps the order and the limit', async () => {
    let running = 0;
    let most = 0;
    const results = await inParallel([30, 1, 20, 2, 10], 2, never, async (ms) => {
      most = Math.max(most, ++running);
      await sleep(ms);
      running -= 1;
      return ms;
    });
    expect(results).toEqual([30, 1, 20, 2, 10]);
    expect(most).toBe(2);
  });

  it('stops the others at the first failure and throws it once they have ended', async () => {
    const ended: number[] = [];
    const work = async (item: number, stop: AbortSignal) => {
      if (item === 1) throw new Error('first');
      await sleep(60_000, stop).finally(() => ended.push(item));
    };
    await expect(inParallel([0, 1, 2, 3], 2, never, work)).rejects.toThrow('first');
    expect(ended).toEqual([0]);
  });

  it('throws the reason of its signal', async () => {
    const stop = new AbortController();
    const all = inParallel([1, 2], 1, stop.signal, (_item, signal) => sleep(60_000, signal));
    stop.abort(new Error('enough'));
    await expect(all).rejects.toThrow('enough');
  });

  it('does nothing for nothing', async () => {
    expect(await inParallel([], 4, never, async () => 1)).toEqual([]);
  });
});

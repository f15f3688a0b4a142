import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { SharedReads } from './shared-reads.ts';

describe('shared reads', () => {
  it('are as few as possible, and none is older than the question', async () => {
    const shared = new SharedReads<number>();
    let written = 0;
    let reads = 0;
    const read = async () => {
      reads += 1;
      const seen = written;
      await sleep(Math.random() * 3);
      return seen;
    };
    const asking: Promise<void>[] = [];
    for (let i = 0; i < 2_000; i += 1) {
      const atLeast = ++written;
      asking.push(shared.read('a', read).then((seen) => expect(seen).toBeGreaterThanOrEqual(atLeast)));
      if (i % 50 === 49) await sleep(Math.random() * 4);
    }
    await Promise.all(asking);
    expect(reads).toBeLessThan(200);
  });

  it('of other keys do not wait', async () => {
    const shared = new SharedReads<string>();
    const stuck = shared.read('a', () => new Promise<string>(() => {}));
    void stuck;
    expect(await shared.read('b', async () => 'b')).toBe('b');
  });

  it('that fail do so for whom they were made, and the next is made anew', async () => {
    const shared = new SharedReads<string>();
    const first = shared.read('a', async () => Promise.reject(new Error('no connection')));
    const second = shared.read('a', async () => 'there');
    await expect(first).rejects.toThrow('no connection');
    expect(await second).toBe('there');
    expect(await shared.read('a', async () => 'later')).toBe('later');
  });
});

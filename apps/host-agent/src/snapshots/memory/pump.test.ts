import { sleep } from '@fuse/runtime';
import { expect, it } from 'vitest';
import { pump } from './pump.ts';

const numbers = Array.from({ length: 40 }, (_, index) => index);

it('writes in order, however long each read takes', async () => {
  const written: number[] = [];
  await pump({
    pieces: numbers,
    read: async (piece) => {
      await sleep((piece * 7) % 5);
      return piece;
    },
    write: async (piece, content) => {
      expect(content).toBe(piece);
      written.push(piece);
    },
  });
  expect(written).toEqual(numbers);
});

it('lets no piece have a buffer that another still writes', async () => {
  const inUse = new Set<Buffer>();
  await pump({
    pieces: numbers,
    read: async (_, buffer) => {
      expect(inUse.has(buffer)).toBe(false);
      inUse.add(buffer);
      return buffer;
    },
    write: async (piece, buffer) => {
      await sleep(piece % 3);
      inUse.delete(buffer);
    },
  });
});

it('stops at the first failure, and settles once nothing is in flight', async () => {
  let inFlight = 0;
  const reading = pump({
    pieces: numbers,
    read: async (piece) => {
      inFlight += 1;
      await sleep(5);
      inFlight -= 1;
      if (piece === 5) throw new Error('unreadable');
      if (piece > 20) throw new Error('went on');
      return piece;
    },
    write: () => sleep(5),
  });
  await expect(reading).rejects.toThrow('unreadable');
  expect(inFlight).toBe(0);
});

it('stops when it is aborted', async () => {
  const stop = new AbortController();
  const reading = pump(
    {
      pieces: numbers,
      read: async (piece) => {
        if (piece === 5) stop.abort(new Error('not wanted any more'));
      },
      write: async () => {},
    },
    stop.signal,
  );
  await expect(reading).rejects.toThrow('not wanted any more');
});

import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { createLogger } from './logger.ts';
import { Rereading } from './rereading.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

it('takes what is new once, and keeps what was before when that cannot be read or taken', async () => {
  let value = 'a';
  let refused = '';
  const taken: string[] = [];
  const log = createLogger({ name: 'test', level: 'silent' });
  const errors = vi.spyOn(log, 'error');
  await using rereading = new Rereading('a', {
    what: 'letters',
    log,
    everyMs: 10,
    read: () => {
      if (value === '') throw new Error('not there');
      return value;
    },
    apply: (next) => {
      if (next === refused) throw new Error('not that one');
      taken.push(next);
    },
  });
  const after = (next: string) => {
    value = next;
    vi.advanceTimersByTime(50);
    return taken.join('');
  };
  expect(after('a')).toBe('');
  expect(after('b')).toBe('b');
  expect(after('')).toBe('b');
  expect(errors).toHaveBeenCalledTimes(1);
  refused = 'c';
  expect(after('c')).toBe('b');
  expect(errors).toHaveBeenCalledTimes(2);
  refused = '';
  expect(after('c')).toBe('bc');
  await rereading[Symbol.asyncDispose]();
  expect(after('d')).toBe('bc');
});

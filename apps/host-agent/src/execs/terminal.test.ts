import type { TerminalSize } from '@fuse/contract';
import { createLogger } from '@fuse/runtime';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Terminal } from './terminal.ts';

const log = createLogger({ name: 'test', level: 'silent' });
const initial = { rows: 24, cols: 80 };

function terminal(fail: () => boolean = () => false) {
  const applied: TerminalSize[] = [];
  const subject = new Terminal(
    initial,
    async (size) => {
      await new Promise((resolve) => setImmediate(resolve));
      if (fail()) throw new Error('the guest does not answer');
      applied.push(size);
    },
    { log },
  );
  return { subject, applied };
}

describe('a terminal', () => {
  it('is as small as its smallest viewer, and stays as it was when the last one leaves', async () => {
    const side = fc.integer({ min: 1, max: 65_535 });
    const step = fc.record({ viewer: fc.nat(3), size: fc.option(fc.record({ rows: side, cols: side })) });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 20 }), async (steps) => {
        const { subject } = terminal();
        const there = new Map<number, { viewer: ReturnType<Terminal['attach']>; size: TerminalSize }>();
        let expected: TerminalSize = initial;
        for (const { viewer: who, size } of steps) {
          const known = there.get(who);
          if (size === null) {
            there.delete(who);
            await known?.viewer.leave();
          } else {
            const viewer = known?.viewer ?? subject.attach();
            there.set(who, { viewer, size });
            await viewer.resize(size);
          }
          const sizes = [...there.values()].map((each) => each.size);
          if (sizes.length > 0)
            expected = {
              rows: Math.min(...sizes.map(({ rows }) => rows)),
              cols: Math.min(...sizes.map(({ cols }) => cols)),
            };
          expect(subject.size).toEqual(expected);
          expect(subject.viewers).toBe(there.size);
        }
      }),
    );
  });

  it('is told only what is wanted in the end, and only what is new', async () => {
    const { subject, applied } = terminal();
    const viewer = subject.attach();
    await Promise.all(Array.from({ length: 50 }, (_, at) => viewer.resize({ rows: 10 + at, cols: 50 })));
    await viewer.resize({ rows: 59, cols: 50 });
    expect(applied.at(-1)).toEqual({ rows: 59, cols: 50 });
    expect(applied.length).toBeLessThan(5);
  });

  it('keeps the size that it has when the guest could not be told', async () => {
    let broken = true;
    const { subject } = terminal(() => broken);
    const viewer = subject.attach();
    await viewer.resize({ rows: 5, cols: 5 });
    expect(subject.size).toEqual(initial);
    broken = false;
    await viewer.resize({ rows: 6, cols: 5 });
    expect(subject.size).toEqual({ rows: 6, cols: 5 });
    await viewer.leave();
    await viewer.resize({ rows: 1, cols: 1 });
    expect(subject.size).toEqual({ rows: 6, cols: 5 });
  });
});

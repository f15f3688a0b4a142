import { posix } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { leadsOut, partsInside } from './inside.ts';

const name = fc.array(fc.constantFrom('a', 'b', '.', '..', ''), { maxLength: 6 }).map((parts) => parts.join('/'));

describe('names of archives', () => {
  it('never leave the directory', () => {
    fc.assert(
      fc.property(name, (text) => {
        const parts = partsInside(text);
        if (parts !== undefined) expect(posix.join('/root', ...parts).startsWith('/root')).toBe(true);
        else expect(text.startsWith('/') || text.split('/').includes('..')).toBe(true);
      }),
    );
  });

  it('of links are judged as they would be resolved', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom('a', 'b'), { minLength: 1, maxLength: 4 }), name, (link, target) => {
        if (leadsOut(link, target)) return;
        const resolved = posix.join('/root', ...link.slice(0, -1), target);
        expect(`${resolved}/`.startsWith('/root/')).toBe(true);
      }),
    );
    expect(leadsOut(['a', 'b'], '..')).toBe(false);
    expect(leadsOut(['a'], '..')).toBe(true);
    expect(leadsOut(['a', 'b'], '../../root/a')).toBe(true);
    expect(leadsOut(['a'], '/a')).toBe(true);
  });
});

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { DetachScanner, parseDetachKeys } from './detach-keys.ts';

const bytes = (text: string) => new TextEncoder().encode(text);

test('keys are written as docker writes them', () => {
  expect([...parseDetachKeys('ctrl-p,ctrl-q')]).toEqual([0x10, 0x11]);
  expect([...parseDetachKeys('ctrl-]')]).toEqual([0x1d]);
  expect([...parseDetachKeys('a,CTRL-A')]).toEqual([0x61, 0x01]);
  expect([...parseDetachKeys('')]).toEqual([]);
  for (const bad of ['ctrl-', 'ctrl-1', 'ab', 'ä', 'ctrl-p,', ' ']) expect(() => parseDetachKeys(bad), bad).toThrow();
});

test('what is typed passes, and the keys do not', () => {
  const scanner = new DetachScanner(parseDetachKeys('ctrl-p,ctrl-q'));
  expect(scanner.push(bytes('ls\n'))).toEqual({ pass: bytes('ls\n'), detached: false });
  expect(scanner.push(bytes('\x10'))).toEqual({ pass: bytes(''), detached: false });
  expect(scanner.push(bytes('x'))).toEqual({ pass: bytes('\x10x'), detached: false });
  expect(scanner.push(bytes('a\x10\x11b'))).toEqual({ pass: bytes('a'), detached: true });
});

test('a beginning that begins again is not missed', () => {
  const scanner = new DetachScanner(parseDetachKeys('a,a,b'));
  expect(scanner.push(bytes('aaab'))).toEqual({ pass: bytes('a'), detached: true });
});

test('without keys everything passes', () => {
  const scanner = new DetachScanner(parseDetachKeys(''));
  expect(scanner.push(bytes('\x10\x11'))).toEqual({ pass: bytes('\x10\x11'), detached: false });
});

test('cut anywhere, the same passes and it detaches at the same place as a search in the whole would', () => {
  const key = fc.constantFrom('a', 'b', 'c');
  fc.assert(
    fc.property(
      fc.array(key, { minLength: 1, maxLength: 4 }),
      fc.array(fc.string({ unit: key, maxLength: 6 })),
      (keys, chunks) => {
        const scanner = new DetachScanner(parseDetachKeys(keys.join(',')));
        const whole = chunks.join('');
        const at = whole.indexOf(keys.join(''));
        let passed = '';
        let detached = false;
        for (const chunk of chunks) {
          const result = scanner.push(bytes(chunk));
          passed += new TextDecoder().decode(result.pass);
          detached = result.detached;
          if (detached) break;
        }
        expect(detached).toBe(at >= 0);
        if (at >= 0) expect(passed).toBe(whole.slice(0, at));
        else expect(whole.startsWith(passed) && whole.length - passed.length < keys.length).toBe(true);
      },
    ),
  );
});

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ScreenModes } from './screen-modes.ts';

const bytes = (text: string) => new TextEncoder().encode(text);
const restoring = (...chunks: string[]) => {
  const modes = new ScreenModes();
  for (const chunk of chunks) modes.watch(bytes(chunk));
  return modes.restoring();
};

test('what a program switched on is switched off, and nothing else', () => {
  expect(restoring('hello')).toBe('\x1b[0m');
  expect(restoring('\x1b[?1049h\x1b[?25l text')).toBe('\x1b[?1049l\x1b[?25h\x1b[0m');
  expect(restoring('\x1b[?1049h\x1b[?25l', '\x1b[?25h\x1b[?1049l')).toBe('\x1b[0m');
  expect(restoring('\x1b[?1000;1006h\x1b=')).toBe('\x1b[?1000l\x1b[?1006l\x1b>\x1b[0m');
  expect(restoring('\x1b[?2004h\x1bc')).toBe('\x1b[0m');
});

test('a sequence cut anywhere is read whole', () => {
  const text = 'a\x1b[?1049hb\x1b[31mc\x1b[?25ld\x1b[?2004;1h';
  fc.assert(
    fc.property(fc.array(fc.nat(text.length), { maxLength: 6 }), (cuts) => {
      const at = [0, ...cuts.sort((a, b) => a - b), text.length];
      const chunks = at.slice(1).map((end, index) => text.slice(at[index], end));
      expect(restoring(...chunks)).toBe(restoring(text));
    }),
  );
});

test('whatever comes, what is held is bounded and nothing throws', () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 64 })), (chunks) => {
      const modes = new ScreenModes();
      for (const chunk of chunks) modes.watch(chunk);
      expect(modes.restoring().length).toBeLessThan(300);
    }),
  );
});

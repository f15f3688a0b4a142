import fc from 'fast-check';
import { expect, test } from 'vitest';
import { QueryFilter } from './terminal-queries.ts';

const filtered = (...chunks: string[]): string => {
  const filter = new QueryFilter();
  const parts = [...chunks.map((chunk) => filter.push(Buffer.from(chunk, 'latin1'))), filter.end()];
  return Buffer.concat(parts).toString('latin1');
};

test.each([
  '\x1b[c',
  '\x1b[>c',
  '\x1b[>0c',
  '\x1b[6n',
  '\x1b[?6n',
  '\x1b[?2026$p',
  '\x1b[>q',
  '\x1b[?u',
  '\x1b[18t',
  '\x1b]10;?\x07',
  '\x1b]11;?\x1b\\',
  '\x1b]4;255;?\x07',
  '\x1bP+q544e\x1b\\',
  '\x1bP$qm\x1b\\',
  '\x05',
])('%j asks, and is taken out', (query) => {
  expect(filtered(`a${query}b`)).toBe('ab');
});

test.each([
  '\x1b[31m',
  '\x1b[2J',
  '\x1b[?1049h',
  '\x1b]0;title\x07',
  '\x1b[5A',
  '\x1b[1;1H',
  '\x1b(B',
  '\x1b[22;0;0t',
  'plain ünïcode',
])('%j is shown', (text) => {
  expect(filtered(`a${text}b`)).toBe(`a${text}b`);
});

test('cut anywhere it is the same', () => {
  const text = 'x\x1b[31mred\x1b[c\x1b]11;?\x1b\\ \x1b]0;t\x07\x1bP+q544e\x1b\\ \x1b[6n\x1b[0m end\x1b[';
  fc.assert(
    fc.property(fc.array(fc.nat(text.length), { maxLength: 8 }), (cuts) => {
      const at = [0, ...cuts.sort((a, b) => a - b), text.length];
      expect(filtered(...at.slice(1).map((end, index) => text.slice(at[index], end)))).toBe(filtered(text));
    }),
  );
});

test('bytes that are no sequence come through, and what is held is bounded', () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 300 })), (chunks) => {
      const filter = new QueryFilter();
      const passed = Buffer.concat([...chunks.map((chunk) => filter.push(chunk)), filter.end()]);
      const whole = Buffer.concat(chunks);
      if (!whole.includes(0x1b) && !whole.includes(0x05)) expect(passed.equals(whole)).toBe(true);
      expect(passed.length).toBeLessThanOrEqual(whole.length);
    }),
  );
});

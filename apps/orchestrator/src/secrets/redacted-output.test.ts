import { frameType } from '@fuse/contract';
import { describe, expect, it } from 'vitest';
import { OutputTail } from './redacted-output.ts';

const { stdout, stderr, gap } = frameType;
const secrets = { a: 'hunter2 hunter2', b: 'hunter2 hunter2 and more', short: 'abc' };
const shown = (
  frames: readonly (readonly [number, string])[],
  { isCut = false, isBroken = false, maxBytes = 4_096 } = {},
) => {
  const tail = new OutputTail(isCut);
  for (const [type, text] of frames) tail.add(type, Buffer.from(text));
  return tail.text(secrets, { maxBytes, isBroken });
};

describe('the end of an output', () => {
  it('is shown as it came, without secrets', () => {
    expect(shown([[stdout, 'abc hunter2 hunter2, hunter2 hunter2hunter2 hunter2 and more']])).toBe(
      'abc [REDACTED], [REDACTED]',
    );
    expect(
      shown([
        [stdout, 'ab'],
        [stderr, 'x'],
        [stdout, 'c\n'],
      ]),
    ).toBe('abxc\n');
    expect(shown([])).toBe('');
  });

  it('has none that came in pieces, with another stream between them', () => {
    const pieces = [...secrets.a].flatMap(
      (byte) =>
        [
          [stdout, byte],
          [stderr, '.'],
        ] as const,
    );
    expect(shown([[stdout, 'x'], ...pieces, [stdout, 'y']])).toBe(`x[REDACTED]${'.'.repeat(pieces.length / 2)}y`);
  });

  it('has no part of one that the cut of what is shown goes through', () => {
    const frames = [[stdout, `before ${secrets.a} after`]] as const;
    for (let maxBytes = 0; maxBytes < 40; maxBytes += 1)
      expect('before [REDACTED] after'.endsWith(shown(frames, { maxBytes: maxBytes + 1 }))).toBe(true);
  });

  it('has no part of one that began before it, or that its command was ended at', () => {
    for (let at = 1; at < secrets.b.length; at += 1) {
      const [head, rest] = [secrets.b.slice(0, at), secrets.b.slice(at)];
      expect(shown([[stdout, `${rest}\nx`]], { isCut: true })).toBe('[REDACTED]\nx');
      expect(
        shown([
          [stdout, `x\n${head}`],
          [gap, '{}'],
          [stdout, `${rest}\ny`],
        ]),
      ).toBe('[REDACTED]\ny');
      expect(shown([[stdout, `x\n${head}`]], { isBroken: true })).not.toMatch(/h.*$/);
    }
    expect(shown([[stdout, 'more\n']])).toBe('more\n');
    expect(shown([[stdout, 'hunter2 hunter2 hunt']], { isBroken: true })).toBe('[REDACTED]');
  });
});

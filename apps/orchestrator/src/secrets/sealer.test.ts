import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { createSealer } from './aes-sealer.ts';
import { openJson, type SealedJson, sealJson } from './sealed-json.ts';
import { parseSealingKey } from './sealing-keys.ts';

const key = randomBytes(32);
const sealer = createSealer({ current: key, old: undefined });
const clear = createSealer({ current: undefined, old: undefined });

describe('a sealer', () => {
  it('opens what it sealed, and shows nothing of it', () => {
    for (const text of ['', 'hunter2 hunter2', 'ü\0\u{1f600}', 'x'.repeat(100_000)]) {
      const sealed = sealer.seal(text, 'a:1');
      expect(sealed.startsWith(sealer.prefix)).toBe(true);
      if (text !== '') expect(sealed).not.toContain(text);
      expect(sealer.open(sealed, 'a:1')).toBe(text);
    }
  });

  it('never seals the same into the same', () => {
    expect(sealer.seal('x', 'a:1')).not.toBe(sealer.seal('x', 'a:1'));
  });

  it('refuses what is of another place, was changed, cut, or is nothing of its own', () => {
    const sealed = sealer.seal('secret', 'a:1');
    expect(() => sealer.open(sealed, 'a:2')).toThrow(/a:2 cannot be opened/);
    for (const at of [24, 30, sealed.length - 3]) {
      const other = sealed[at] === 'A' ? 'B' : 'A';
      expect(() => sealer.open(sealed.slice(0, at) + other + sealed.slice(at + 1), 'a:1'), `${at}`).toThrow();
    }
    for (const text of [sealed.slice(0, 30), sealer.prefix, 'fuse1:', '', 'secret'])
      expect(() => sealer.open(text, 'a:1'), text).toThrow();
  });

  it('opens what the old key sealed, and names a key that it does not have', () => {
    const newer = createSealer({ current: randomBytes(32), old: key });
    const sealed = sealer.seal('secret', 'a:1');
    expect(newer.open(sealed, 'a:1')).toBe('secret');
    expect(newer.seal('secret', 'a:1').startsWith(sealer.prefix)).toBe(false);
    expect(() => clear.open(sealed, 'a:1')).toThrow(/key [0-9a-f]{16}, which is neither/);
  });

  it('writes in clear without a key, which stays readable with one', () => {
    expect(clear.seal('text', 'a:1')).toBe('clear:text');
    expect(sealer.open('clear:text', 'a:1')).toBe('text');
  });
});

describe('sealed values', () => {
  it('come back, whatever they hold', () => {
    for (const value of [{}, { A: 'b' }, { sealed: 'x' }, { sealed: 'clear:x' }, { sealed: sealer.seal('x', 'a') }]) {
      expect(openJson(sealer, sealJson(sealer, value, 'e:1'), 'e:1')).toEqual(value);
      expect(openJson(clear, sealJson(clear, value, 'e:1'), 'e:1')).toEqual(value);
    }
    expect(JSON.stringify(sealJson(sealer, { A: 'hunter2' }, 'e:1'))).not.toContain('hunter2');
  });

  it('are read when they were written in clear', () => {
    const before = { A: 'b' } as unknown as SealedJson<Record<string, string>>;
    expect(openJson(sealer, before, 'e:1')).toEqual({ A: 'b' });
  });
});

describe('keys', () => {
  it('are 32 bytes as hex or base64', () => {
    expect(parseSealingKey(key.toString('hex'))).toEqual(key);
    expect(parseSealingKey(key.toString('base64'))).toEqual(key);
    expect(parseSealingKey(key.toString('base64url'))).toEqual(key);
    for (const text of ['', 'secret', 'ab'.repeat(31), 'a'.repeat(42), 'a'.repeat(45), `${'a'.repeat(42)}!`])
      expect(parseSealingKey(text), text).toBeUndefined();
  });
});

import { execFileSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { unpackLz4Legacy } from './lz4-legacy.mjs';

const u32 = (/** @type {number} */ value) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};
/** @param {Buffer[]} blocks @param {number} size */
const frame = (blocks, size) =>
  Buffer.concat([u32(0x184c2102), ...blocks.flatMap((block) => [u32(block.length), block]), u32(size)]);

describe('LZ4 legacy frames', () => {
  it('unpacks literals and overlapping matches, block by block', () => {
    // "ab", then 10 bytes from distance 2, then "!" as last literals.
    const block = Buffer.from([0x26, 0x61, 0x62, 2, 0, 0x10, 0x21]);
    expect(unpackLz4Legacy(frame([block, block], 26)).toString()).toBe('abababababab!abababababab!');
  });

  it('unpacks lengths that go over several bytes', () => {
    const literals = Buffer.alloc(300, 'x');
    const block = Buffer.concat([Buffer.from([0xf0, 255, 30]), literals]);
    expect(unpackLz4Legacy(frame([block], 300))).toEqual(literals);
  });

  it.each([
    ['no frame', Buffer.concat([u32(1), u32(0)])],
    ['a block longer than the frame', Buffer.concat([u32(0x184c2102), u32(100), Buffer.from([0x10, 0x21]), u32(1)])],
    ['a match before the start', frame([Buffer.from([0x10, 0x21, 9, 0])], 10)],
    ['literals beyond the block', frame([Buffer.from([0x50, 0x21])], 5)],
    ['more than it says', frame([Buffer.from([0x20, 0x21, 0x21])], 1)],
    ['less than it says', frame([Buffer.from([0x10, 0x21])], 2)],
  ])('refuses %s', (_what, packed) => {
    expect(() => unpackLz4Legacy(packed)).toThrow(/LZ4/);
  });

  it('unpacks what the lz4 program packs', () => {
    const data = Buffer.from(Array.from({ length: 50_000 }, (_, index) => `line ${index % 977}`).join('\n'));
    const packed = execFileSync('lz4', ['-l', '-9', '-c'], { input: data, stdio: ['pipe', 'pipe', 'ignore'] });
    expect(unpackLz4Legacy(Buffer.concat([packed, u32(data.length)])).equals(data)).toBe(true);
  });
});

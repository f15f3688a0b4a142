/**
 * Decoder of LZ4's "legacy frame", the form in which Linux packs its kernel image: magic 0x184c2102, then blocks of
 * { u32 compressed length, bytes }, each at most 8 MiB when unpacked. A length that is the magic again starts another frame;
 * Linux appends the unpacked size as a last u32.
 */
const MAGIC = 0x184c2102;
const MAX_BLOCK_BYTES = 8 * 1024 * 1024;

/**
 * @param {Buffer} packed  the frame followed by the u32 of its unpacked size
 * @returns {Buffer}
 */
export function unpackLz4Legacy(packed) {
  const end = packed.length - 4;
  const unpacked = Buffer.alloc(packed.readUInt32LE(end));
  if (packed.readUInt32LE(0) !== MAGIC) throw new Error('not an LZ4 legacy frame');
  let from = 4;
  let to = 0;
  while (from < end) {
    const length = packed.readUInt32LE(from);
    from += 4;
    if (length === MAGIC) continue;
    if (from + length > end) throw new Error('LZ4 block is cut short');
    to = unpackBlock(packed.subarray(from, from + length), unpacked, to);
    from += length;
  }
  if (to !== unpacked.length) throw new Error(`LZ4 frame holds ${to} bytes, not ${unpacked.length}`);
  return unpacked;
}

/** Unpacks one block to `out` from offset `start`; answers the offset behind it. @param {Buffer} block @param {Buffer} out @param {number} start */
function unpackBlock(block, out, start) {
  let from = 0;
  let to = start;
  const byte = () => {
    const value = block[from++];
    if (value === undefined) throw new Error('LZ4 block is cut short');
    return value;
  };
  const length = (/** @type {number} */ nibble) => {
    let total = nibble;
    if (nibble === 15)
      for (;;) {
        const more = byte();
        total += more;
        if (more !== 255) break;
      }
    return total;
  };
  while (from < block.length) {
    const token = byte();
    const literals = length(token >> 4);
    if (from + literals > block.length || to + literals > out.length) throw new Error('LZ4 literals out of bounds');
    block.copy(out, to, from, from + literals);
    from += literals;
    to += literals;
    if (from >= block.length) break;
    const distance = byte() | (byte() << 8);
    const match = length(token & 15) + 4;
    const source = to - distance;
    if (distance === 0 || source < start || to + match > out.length) throw new Error('LZ4 match out of bounds');
    if (distance >= match) out.copyWithin(to, source, source + match);
    else for (let i = 0; i < match; i++) out[to + i] = /** @type {number} */ (out[source + i]);
    to += match;
  }
  if (to - start > MAX_BLOCK_BYTES) throw new Error('LZ4 block is too large');
  return to;
}

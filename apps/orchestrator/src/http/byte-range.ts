/** A single `Range: bytes=…` (RFC 9110, 14.1). Several ranges, or a unit we do not know, get the whole: the header is optional. */
export type ByteRange = { start: number; end: number };

/** `end` is one past the last byte. `unsatisfiable` is 416. */
export function parseByteRange(header: string | undefined, sizeBytes: number): ByteRange | 'unsatisfiable' | undefined {
  const match = header === undefined ? null : /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header.trim());
  if (match === null || (match[1] === '' && match[2] === '')) return undefined;
  if (match[1] === '') {
    const suffix = Number(match[2]);
    if (suffix === 0 || sizeBytes === 0) return 'unsatisfiable';
    return { start: Math.max(0, sizeBytes - suffix), end: sizeBytes };
  }
  const start = Number(match[1]);
  const last = match[2] === '' ? sizeBytes - 1 : Number(match[2]);
  if (match[2] !== '' && last < start) return undefined; // not a valid range: ignored
  if (start >= sizeBytes) return 'unsatisfiable';
  return { start, end: Math.min(last + 1, sizeBytes) };
}

/** IPv4 and IPv6 ranges as rules have them: read from every spelling that is unmistakable, written in the one that is canonical (RFC 5952). Pure. */

export interface AddressRange {
  bits: 32 | 128;
  /** Its first address. */
  first: bigint;
  prefix: number;
}

const MAPPED = 0xffffn << 32n;

/** Four decimal numbers without leading zeros, and nothing else that some parser takes for an address. */
export function parseIPv4(text: string): bigint | undefined {
  const parts = text.split('.');
  if (parts.length !== 4) return undefined;
  let value = 0n;
  for (const part of parts) {
    if (!/^(0|[1-9]\d{0,2})$/.test(part) || Number(part) > 255) return undefined;
    value = (value << 8n) | BigInt(part);
  }
  return value;
}

/** Without a zone; the last 32 bits may be written as an IPv4 address. */
export function parseIPv6(text: string): bigint | undefined {
  const [left = '', right, ...more] = text.split('::');
  if (more.length > 0 || text.length > 45) return undefined;
  const head = groupsOf(left, right === undefined);
  const tail = right === undefined ? [] : groupsOf(right, true);
  if (head === undefined || tail === undefined) return undefined;
  const missing = 8 - head.length - tail.length;
  if (right === undefined ? missing !== 0 : missing < 1) return undefined;
  return [...head, ...Array<number>(missing).fill(0), ...tail].reduce(
    (value, group) => (value << 16n) | BigInt(group),
    0n,
  );
}

function groupsOf(text: string, isEnd: boolean): number[] | undefined {
  if (text === '') return [];
  const groups: number[] = [];
  const parts = text.split(':');
  for (const [at, part] of parts.entries()) {
    const last = isEnd && at === parts.length - 1 ? parseIPv4(part) : undefined;
    if (last !== undefined) groups.push(Number(last >> 16n), Number(last & 0xffffn));
    else if (/^[0-9a-f]{1,4}$/i.test(part)) groups.push(Number.parseInt(part, 16));
    else return undefined;
  }
  return groups;
}

/** `ADDRESS` or `ADDRESS/PREFIX`, bits beyond the prefix as they are given. IPv4-mapped IPv6 is IPv4. */
export function parseRange(text: string): AddressRange | undefined {
  const [address = '', given, ...more] = text.split('/');
  const v4 = parseIPv4(address);
  const value = v4 ?? parseIPv6(address);
  if (value === undefined || more.length > 0) return undefined;
  const bits = v4 === undefined ? 128 : 32;
  if (given !== undefined && !/^(0|[1-9]\d{0,2})$/.test(given)) return undefined;
  const prefix = given === undefined ? bits : Number(given);
  if (prefix > bits) return undefined;
  if (bits === 128 && prefix >= 96 && value >> 32n === MAPPED >> 32n)
    return { bits: 32, first: value & 0xffff_ffffn, prefix: prefix - 96 };
  return { bits, first: value, prefix };
}

/** Bits beyond the prefix zero. */
export function networkOf({ bits, first, prefix }: AddressRange): AddressRange {
  const beyond = BigInt(bits - prefix);
  return { bits, first: (first >> beyond) << beyond, prefix };
}

export const contains = (outer: AddressRange, inner: AddressRange): boolean =>
  outer.bits === inner.bits &&
  outer.prefix <= inner.prefix &&
  outer.first >> BigInt(outer.bits - outer.prefix) === inner.first >> BigInt(outer.bits - outer.prefix);

export const formatRange = ({ bits, first, prefix }: AddressRange): string =>
  `${bits === 32 ? formatIPv4(first) : formatIPv6(first)}/${prefix}`;

const formatIPv4 = (value: bigint): string => [24n, 16n, 8n, 0n].map((shift) => (value >> shift) & 0xffn).join('.');

function formatIPv6(value: bigint): string {
  const groups = Array.from({ length: 8 }, (_, at) => Number((value >> BigInt(16 * (7 - at))) & 0xffffn));
  const { from, length } = longestZeros(groups);
  const hex = (part: readonly number[]) => part.map((group) => group.toString(16)).join(':');
  return length < 2 ? hex(groups) : `${hex(groups.slice(0, from))}::${hex(groups.slice(from + length))}`;
}

/** The first of the longest. */
function longestZeros(groups: readonly number[]): { from: number; length: number } {
  let longest = { from: 0, length: 0 };
  for (let from = 0; from < groups.length; from += 1) {
    let length = 0;
    while (groups[from + length] === 0) length += 1;
    if (length > longest.length) longest = { from, length };
    from += length;
  }
  return longest;
}

import { invalidField } from '@fuse/contract';
import type { GetOptions } from './object-store.ts';

export interface ByteRange {
  start: number;
  /** One past the last byte. */
  end: number;
  /** The range is the whole object, so its bytes can be verified. */
  whole: boolean;
}

export function checkRange({ start, end }: NonNullable<GetOptions['range']>): void {
  const valid =
    Number.isSafeInteger(start) && start >= 0 && (end === undefined || (Number.isSafeInteger(end) && end >= start));
  if (!valid) throw invalidField('range', 'must be whole numbers, start at least 0 and end not before start');
}

export function resolveRange(range: GetOptions['range'], sizeBytes: number): ByteRange {
  if (range === undefined) return { start: 0, end: sizeBytes, whole: true };
  checkRange(range);
  if (range.start > sizeBytes) throw invalidField('range', `starts beyond the object's ${sizeBytes} bytes`);
  const end = Math.min(range.end ?? sizeBytes, sizeBytes);
  return { start: range.start, end, whole: range.start === 0 && end === sizeBytes };
}

/** Instants that clients send, in queries and in cursors: those that the database and the answers can say. */
import { invalidField, Timestamp } from '@fuse/contract';
import { z } from 'zod';

/** Years 1 to 9999 of UTC: PostgreSQL has no year 0, and RFC 3339 no year of five digits. */
const MIN_MS = Date.parse('0001-01-01T00:00:00Z');
const MAX_MS = Date.parse('9999-12-31T23:59:59.999Z');

const isInRange = (text: string): boolean => {
  const at = Date.parse(text);
  return at >= MIN_MS && at <= MAX_MS;
};

/** As it was sent. */
export const Instant = Timestamp.refine(isInRange, 'must be in the years 1 to 9999');

/** To the microsecond, as rows have it. */
export const CursorInstant = z.iso.datetime({ precision: 6 }).refine(isInRange);

/** Of a query parameter; `undefined` for an absent or empty one. */
export function instant(field: string, text: string | undefined): string | undefined {
  if (text === undefined || text === '') return undefined;
  const parsed = Instant.safeParse(text);
  if (!parsed.success)
    throw invalidField(field, 'must be an RFC 3339 timestamp of the years 1 to 9999, such as 2026-01-31T12:00:00Z');
  return parsed.data;
}

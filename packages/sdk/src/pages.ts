/** Every page of a list. A server that repeats a cursor is stopped, not followed for ever. */
import { z } from 'zod';
import { FuseError } from './errors.ts';

export const ALL_PAGES_LIMIT = 200;

/** Where a list is null or missing there is nothing in it, as published clients take it. */
export const listOf = <T extends z.ZodType>(item: T) =>
  z
    .array(item)
    .nullish()
    .transform((items) => items ?? []);
/** Absent, null or empty on the last page. */
export const nextCursor = z
  .string()
  .nullish()
  .transform((cursor) => cursor || undefined);

export async function allPages<T>(
  page: (cursor: string | undefined) => Promise<{ items: T[]; nextCursor: string | undefined }>,
): Promise<T[]> {
  const items: T[] = [];
  const seen = new Set<string>();
  let cursor: string | undefined;
  do {
    const next = await page(cursor);
    items.push(...next.items);
    cursor = next.nextCursor;
    if (cursor !== undefined && seen.has(cursor)) throw new FuseError('the server gave the same page cursor twice');
    if (cursor !== undefined) seen.add(cursor);
  } while (cursor !== undefined);
  return items;
}

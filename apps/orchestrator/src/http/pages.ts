/** Keyset pagination (api.md 0.7): an opaque cursor that names the last row seen. */
import { AppError, invalidField, Label } from '@fuse/contract';
import { z } from 'zod';

export const encodeCursor = (position: Record<string, string>): string =>
  Buffer.from(JSON.stringify(position)).toString('base64url');

/** `undefined` for an absent or empty cursor. */
export function decodeCursor<T extends z.ZodType>(cursor: string | undefined, schema: T): z.infer<T> | undefined {
  if (cursor === undefined || cursor === '') return undefined;
  try {
    return schema.parse(JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'), withoutNul));
  } catch (error) {
    throw new AppError('invalid_argument', 'invalid pagination cursor', { details: { field: 'cursor' }, cause: error });
  }
}

/** No database takes one. */
function withoutNul(_: string, value: unknown): unknown {
  if (typeof value === 'string' && value.includes('\0')) throw new Error('holds NUL');
  return value;
}

/** A query parameter that may be given once; of several the last one counts. */
export const queryText = z
  .union([z.string(), z.array(z.string()).transform((values) => values.at(-1) ?? '')])
  .optional();

/** `label=key=value`, any number of them: all must match. */
export const labelQuery = z.union([z.string(), z.array(z.string())]).optional();

export function parseLabels(given: string | string[] | undefined): Record<string, string> {
  const labels: Record<string, string> = {};
  for (const text of given === undefined ? [] : [given].flat()) {
    const at = text.indexOf('=');
    const [key, value] = [text.slice(0, at), text.slice(at + 1)];
    if (at < 1 || !Label.safeParse(key).success || !Label.safeParse(value).success)
      throw invalidField('label', 'must be key=value');
    labels[key] = value;
  }
  return labels;
}

export const pageQuery = { limit: queryText, cursor: queryText };

/** Asks for one row more than the page holds; makes `next_cursor` from the last row shown when there was one. */
export function cutPage<Row>(
  rows: Row[],
  limit: number,
  position: (row: Row) => Record<string, string>,
): { page: Row[]; next_cursor?: string } {
  const page = rows.slice(0, limit);
  const last = page.at(-1);
  return rows.length > limit && last !== undefined ? { page, next_cursor: encodeCursor(position(last)) } : { page };
}

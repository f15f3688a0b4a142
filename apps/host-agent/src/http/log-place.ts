import { z } from 'zod';

export const wholeNumber = z.coerce.number().int().nonnegative();

/** Where a log is read from; `offset` counts when both are said. */
export const LogPlace = z.object({ offset: wholeNumber.optional(), tail: wholeNumber.optional() });

export function placeOf({ offset, tail }: z.infer<typeof LogPlace>): { offset: number } | { tail: number } {
  return offset === undefined && tail !== undefined ? { tail } : { offset: offset ?? 0 };
}

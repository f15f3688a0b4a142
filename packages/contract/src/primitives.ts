/** Shapes shared by several nouns. */
import { z } from 'zod';

/** `null` means absent everywhere (clients written in Go send it). */
export const absentIfNull = <T extends z.ZodType>(schema: T) =>
  z.preprocess((value) => (value === null ? undefined : value), schema.optional());

const LABEL = /^[a-zA-Z0-9]([-._a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$/;
export const Label = z
  .string()
  .regex(LABEL, 'must be 1 to 63 letters, digits, "-", "_" or ".", starting and ending with a letter or digit');
export const Labels = z.record(Label, Label).refine((labels) => Object.keys(labels).length <= 64, 'at most 64 labels');

export const EnvName = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,255}$/, 'must be a shell variable name');
export const EnvVars = z
  .record(
    EnvName,
    z
      .string()
      .max(65_536)
      .refine((value) => !value.includes('\0'), 'must not hold NUL'),
  )
  .refine((env) => Object.keys(env).length <= 256, 'at most 256 variables');

/** An absolute path in the guest, already clean. */
export const GuestPath = z
  .string()
  .min(2)
  .max(4096)
  .refine((path) => path.startsWith('/'), 'must be absolute')
  .refine((path) => !/[\0\n]/.test(path), 'must not hold NUL or newline')
  .refine(
    (path) =>
      path
        .slice(1)
        .split('/')
        .every((part) => part !== '' && part !== '.' && part !== '..' && new TextEncoder().encode(part).length <= 255),
    'must be clean: no empty, "." or ".." part, no part over 255 bytes',
  );

export const Timestamp = z.iso.datetime({ offset: true });

export const DEFAULT_PAGE_LIMIT = 50;
export const MAX_PAGE_LIMIT = 200;
/** api.md 0.7: default 50, over 200 becomes 200, anything else that is not a positive integer becomes 50. */
export function pageLimit(raw: unknown): number {
  const value = typeof raw === 'string' && /^\d+$/.test(raw) ? Number(raw) : raw;
  if (typeof value !== 'number' || !Number.isInteger(value) || value <= 0) return DEFAULT_PAGE_LIMIT;
  return Math.min(value, MAX_PAGE_LIMIT);
}

export const Encoding = z.enum(['utf8', 'base64']);
export type Encoding = z.infer<typeof Encoding>;

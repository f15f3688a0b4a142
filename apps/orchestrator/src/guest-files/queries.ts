/** What may be said in the paths of these routes, and how the guest is asked for it. */
import { AnyGuestPath, FileMode, UserName } from '@fuse/contract';
import { z } from 'zod';

const flag = z
  .enum(['0', '1', 'true', 'false', ''], { error: 'must be 0 or 1' })
  .transform((value) => value === '1' || value === 'true')
  .optional();
const id32 = z
  .string()
  .regex(/^\d{1,10}$/, 'must be a number')
  .refine((text) => Number(text) <= 4_294_967_294, 'must be at most 4294967294')
  .optional();
const owner = { user: UserName.optional(), uid: id32, gid: id32 };
const oneOwner = ({ user, uid }: { user?: string | undefined; uid?: string | undefined }) =>
  user === undefined || uid === undefined;
const twoOwners = { error: 'cannot be given together with user', path: ['uid'] };

export const PathQuery = z.object({ path: AnyGuestPath });
export const WatchQuery = z.object({ path: AnyGuestPath, recursive: flag });
export const WriteQuery = z
  .object({
    path: AnyGuestPath,
    mode: FileMode.optional(),
    ...owner,
    sha256: z
      .string()
      .regex(/^[0-9a-f]{64}$/, 'must be 64 lower-case hex digits')
      .optional(),
    exclusive: flag,
  })
  .refine(oneOwner, twoOwners);
export const ExtractQuery = z.object({ path: AnyGuestPath, ...owner }).refine(oneOwner, twoOwners);

/** Flags that are not set, and what is absent, are not said. */
export function guestQuery(values: Record<string, string | number | boolean | undefined>): URLSearchParams {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values))
    if (value !== undefined && value !== false) query.set(name, value === true ? '1' : String(value));
  return query;
}

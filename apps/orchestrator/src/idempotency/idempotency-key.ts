/** The `Idempotency-Key` header, and what makes two bodies the same. */
import { createHash } from 'node:crypto';
import { invalidField } from '@fuse/contract';

const HEADER = 'Idempotency-Key';

/** A request that may be repeated: whose, which route, which key, which body. */
export interface IdempotentRequest {
  tenantId: string;
  route: string;
  key: string;
  bodySha256: string;
}

/** Undefined when there is no such header. `body` is the parsed one: white space and the order of our own fields do not count. */
export function idempotentRequest(
  headers: Readonly<Record<string, string | string[] | undefined>>,
  { tenantId, route, body }: { tenantId: string; route: string; body: unknown },
): IdempotentRequest | undefined {
  const key = headers[HEADER.toLowerCase()];
  if (key === undefined) return undefined;
  if (typeof key !== 'string' || !/^[\x21-\x7e]{1,255}$/.test(key))
    throw invalidField(HEADER, 'must be 1 to 255 printable ASCII characters without spaces');
  const bodySha256 = createHash('sha256').update(JSON.stringify(body)).digest('hex');
  return { tenantId, route, key, bodySha256 };
}

/** The sum that a client declares for its bytes: `X-Fuse-Sha256: <hex>`, or `Content-Digest: sha-256=:<base64>:` (RFC 9530). */
import { invalidField } from '@fuse/contract';

export function declaredSum(
  headers: Readonly<Record<string, string | string[] | undefined>>,
): { sha256: string; field: string } | undefined {
  const hex = headers['x-fuse-sha256'];
  if (hex !== undefined) {
    if (typeof hex !== 'string' || !/^[0-9a-f]{64}$/i.test(hex))
      throw invalidField('X-Fuse-Sha256', 'must be 64 hex digits');
    return { sha256: hex.toLowerCase(), field: 'X-Fuse-Sha256' };
  }
  const digest = headers['content-digest'];
  if (digest === undefined) return undefined;
  const base64 = /(?:^|,)\s*sha-256=:([A-Za-z0-9+/]{43}=):\s*(?:,|$)/.exec(String(digest))?.[1];
  if (base64 !== undefined) return { sha256: Buffer.from(base64, 'base64').toString('hex'), field: 'Content-Digest' };
  // Other algorithms may be ignored; a sha-256 that is none may not.
  if (/sha-256\s*=/i.test(String(digest))) throw invalidField('Content-Digest', 'must hold sha-256=:<base64>:');
  return undefined;
}

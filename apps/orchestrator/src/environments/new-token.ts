/** The credential of an environment (environment-token.ts), made: what its row keeps of it. */
import { createHash, randomBytes } from 'node:crypto';
import { ENVIRONMENT_TOKEN_PREFIX } from '@fuse/contract';
import { sealedAt } from '../secrets/sealed-places.ts';
import type { Sealer } from '../secrets/sealer.ts';

const TOKEN_BYTES = 32;

export function newToken(sealer: Sealer, uid: string): { token_hash: Uint8Array; token_sealed: string } {
  const token = ENVIRONMENT_TOKEN_PREFIX + randomBytes(TOKEN_BYTES).toString('base64url');
  return {
    token_hash: createHash('sha256').update(token).digest(),
    token_sealed: sealer.seal(token, sealedAt('environments.token_sealed', uid)),
  };
}

/** What makes this control plane itself: made once, by whoever comes first. */
import { randomBytes } from 'node:crypto';
import { AppError } from '@fuse/contract';
import { sealedAt } from '../secrets/sealed-places.ts';
import type { Sealer } from '../secrets/sealer.ts';
import type { Db } from './db.ts';

export interface Cluster {
  /** Ownership tag of every VM that this control plane starts. */
  tag: string;
  /** Signs output download URLs when the object store cannot presign. */
  urlSigningKey: Uint8Array;
}

const CONTEXT = sealedAt('cluster.url_signing_key_sealed', 'true');

/** Throws when its key is sealed with a key that `sealer` does not have: then nothing else could be read either. */
export async function ensureCluster(db: Db, sealer: Sealer): Promise<Cluster> {
  await db.query
    .insertInto('cluster')
    .values({
      tag: `fuse-${randomBytes(8).toString('hex')}`,
      url_signing_key_sealed: sealer.seal(randomBytes(32).toString('base64'), CONTEXT),
    })
    .onConflict((conflict) => conflict.column('singleton').doNothing())
    .execute();
  const { tag, url_signing_key, url_signing_key_sealed } = await db.query
    .selectFrom('cluster')
    .selectAll()
    .executeTakeFirstOrThrow();
  if (url_signing_key_sealed !== null) return { tag, urlSigningKey: openSigningKey(sealer, url_signing_key_sealed) };
  if (url_signing_key === null) throw new Error('the cluster has no signing key');
  return { tag, urlSigningKey: url_signing_key };
}

function openSigningKey(sealer: Sealer, sealed: string): Uint8Array {
  try {
    return Buffer.from(sealer.open(sealed, CONTEXT), 'base64');
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new AppError(
      'integrity_error',
      `TOKEN_ENCRYPTION_KEY does not open what is sealed in this database: ${why}`,
      {
        cause,
        hint: 'Start with the key that it was sealed with; while keys change, give the former one as TOKEN_ENCRYPTION_KEY_OLD.',
      },
    );
  }
}

/** What makes this control plane itself: made once, by whoever comes first. */
import { randomBytes } from 'node:crypto';
import type { Db } from './db.ts';

export interface Cluster {
  /** Ownership tag of every VM that this control plane starts. */
  tag: string;
  /** Signs output download URLs when the object store cannot presign. */
  urlSigningKey: Uint8Array;
}

export async function ensureCluster(db: Db): Promise<Cluster> {
  await db.query
    .insertInto('cluster')
    .values({ tag: `fuse-${randomBytes(8).toString('hex')}`, url_signing_key: randomBytes(32) })
    .onConflict((conflict) => conflict.column('singleton').doNothing())
    .execute();
  const row = await db.query.selectFrom('cluster').selectAll().executeTakeFirstOrThrow();
  return { tag: row.tag, urlSigningKey: row.url_signing_key };
}

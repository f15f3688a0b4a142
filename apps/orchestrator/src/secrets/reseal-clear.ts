/** What has a sealed column in place of one in clear: written before there was sealing. */
import type { Db } from '../db/db.ts';
import { sealedAt } from './sealed-places.ts';
import type { Sealer } from './sealer.ts';

/** How many were moved. Few rows: hosts, and the one of the cluster. */
export async function resealClear({ query }: Db, sealer: Sealer): Promise<number> {
  const hosts = await query.selectFrom('hosts').select(['id', 'token']).where('token', 'is not', null).execute();
  for (const { id, token } of hosts)
    await query
      .updateTable('hosts')
      .set({ token: null, token_sealed: sealer.seal(token ?? '', sealedAt('hosts.token_sealed', id)) })
      .where('id', '=', id)
      .where('token', '=', token)
      .execute();
  const cluster = await query
    .selectFrom('cluster')
    .select('url_signing_key')
    .where('url_signing_key', 'is not', null)
    .executeTakeFirst();
  if (!cluster?.url_signing_key) return hosts.length;
  const key = Buffer.from(cluster.url_signing_key).toString('base64');
  await query
    .updateTable('cluster')
    .set({
      url_signing_key: null,
      url_signing_key_sealed: sealer.seal(key, sealedAt('cluster.url_signing_key_sealed', 'true')),
    })
    .where('url_signing_key', 'is not', null)
    .execute();
  return hosts.length + 1;
}

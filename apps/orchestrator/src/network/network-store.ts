/** Networks in the rows of environments. */
import type { NetworkPolicy } from '@fuse/contract';
import { sql } from 'kysely';
import { jsonb, type Queryable } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';

/** Those of a tenant that have a card, or may have one. */
export function environmentsWithCards(db: Queryable, tenantId: string): Promise<Pick<EnvironmentRow, 'uid' | 'id'>[]> {
  return db
    .selectFrom('environments')
    .select(['uid', 'id'])
    .where('tenant_id', '=', tenantId)
    .where('state', 'not in', ['destroying', 'destroyed', 'failed'])
    .where('host_id', 'is not', null)
    .where(sql<boolean>`network_card is distinct from false`)
    .execute();
}

/** `changed` has no card after all: its policy is `former` again, unless somebody has changed it since. */
export async function takeBackNetwork(
  db: Queryable,
  { uid, network }: Pick<EnvironmentRow, 'uid' | 'network'>,
  former: NetworkPolicy,
): Promise<void> {
  await db
    .updateTable('environments')
    .set({ network: jsonb(former), network_card: false })
    .where('uid', '=', uid)
    .where(sql<boolean>`network = ${jsonb(network)}`)
    .execute();
}

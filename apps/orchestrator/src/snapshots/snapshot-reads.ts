/** Lists and look-ups. Newest first by (created_at, id); a page goes on behind the last row that was shown. */
import { sql } from 'kysely';
import type { Queryable } from '../db/db.ts';
import type { SnapshotRow } from '../db/schema.ts';

export interface SnapshotPosition {
  /** To the microsecond, as the row has it. */
  created_at: string;
  id: string;
}

export interface SnapshotFilter {
  /** Whose. */
  tenantId: string;
  vm_id?: string | undefined;
  task_id?: string | undefined;
  /** As shown: a task's id, or a key's. */
  tenant_id?: string | undefined;
  state?: string | undefined;
  mode?: string | undefined;
  name?: string | undefined;
  layer_key?: string | undefined;
  arch?: string | undefined;
  after?: SnapshotPosition | undefined;
  limit: number;
}

export type ListedSnapshot = SnapshotRow & { position: string };

const position = sql<string>`to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;
const shownTenant = sql<string>`case when layer_key is null then task_id else coalesce(key_id, '') end`;
const EXACT = ['vm_id', 'task_id', 'mode', 'name', 'layer_key', 'arch'] as const;

/** One more than `limit` when there are more. */
export function listSnapshots(db: Queryable, filter: SnapshotFilter): Promise<ListedSnapshot[]> {
  let query = db
    .selectFrom('snapshots')
    .selectAll()
    .select(position.as('position'))
    .where('tenant_id', '=', filter.tenantId);
  for (const column of EXACT) {
    const wanted = filter[column];
    if (wanted !== undefined) query = query.where(column, '=', wanted);
  }
  if (filter.state !== undefined) query = query.where(sql<string>`state`, '=', filter.state);
  if (filter.tenant_id !== undefined) query = query.where(shownTenant, '=', filter.tenant_id);
  if (filter.after !== undefined)
    query = query.where(
      sql<boolean>`(created_at, id) < (${filter.after.created_at}::timestamptz, ${filter.after.id}::text)`,
    );
  return query
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .limit(filter.limit + 1)
    .execute();
}

export interface Layer {
  tenantId: string;
  /** The API key that made it; null: the master; undefined: anybody of the tenant. */
  madeBy: string | null | undefined;
  layerKey: string;
  arch: string;
}

/** The newest ready one of this layer. */
export function resolveLayer(
  db: Queryable,
  { tenantId, madeBy, layerKey, arch }: Layer,
): Promise<SnapshotRow | undefined> {
  let query = db.selectFrom('snapshots').selectAll();
  if (madeBy !== undefined) query = query.where('key_id', 'is not distinct from', madeBy);
  return query
    .where('tenant_id', '=', tenantId)
    .where('layer_key', '=', layerKey)
    .where('arch', '=', arch)
    .where('state', '=', 'ready')
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .limit(1)
    .executeTakeFirst();
}

import type { Scope } from '@fuse/contract';
import { sql } from 'kysely';
import { inMs, now, type Queryable, type Tx } from '../db/db.ts';
import type { ApiKeyRow } from './api-key.ts';

const shown = ['id', 'tenant_id', 'label', 'scopes', 'created_at', 'expires_at', 'last_used_at', 'revoked_at'] as const;

export interface NewApiKey {
  id: string;
  tenantId: string;
  hash: Uint8Array;
  label: string | null;
  scopes: Scope[] | null;
  lifetimeMs: number | undefined;
}

export function insertApiKey(tx: Tx, { id, tenantId, hash, label, scopes, lifetimeMs }: NewApiKey): Promise<ApiKeyRow> {
  return tx
    .insertInto('api_keys')
    .values({
      id,
      tenant_id: tenantId,
      hash,
      label,
      scopes,
      expires_at: lifetimeMs === undefined ? null : inMs(lifetimeMs),
    })
    .returning(shown)
    .executeTakeFirstOrThrow();
}

/** Newest first; of every tenant when none is given. */
export function listApiKeys(query: Queryable, tenantId: string | undefined): Promise<ApiKeyRow[]> {
  let rows = query.selectFrom('api_keys').select(shown);
  if (tenantId !== undefined) rows = rows.where('tenant_id', '=', tenantId);
  return rows.orderBy('created_at', 'desc').orderBy('id', 'desc').execute();
}

export async function countApiKeys(query: Queryable, tenantId: string): Promise<number> {
  const { count } = await query
    .selectFrom('api_keys')
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .where('tenant_id', '=', tenantId)
    .executeTakeFirstOrThrow();
  return Number(count);
}

/** Whose it was; undefined: there is none. */
export async function revokeApiKey(tx: Tx, id: string, tenantId: string | undefined): Promise<string | undefined> {
  let update = tx
    .updateTable('api_keys')
    .set({ revoked_at: sql<Date>`coalesce(revoked_at, now())` })
    .where('id', '=', id);
  if (tenantId !== undefined) update = update.where('tenant_id', '=', tenantId);
  return (await update.returning('tenant_id').executeTakeFirst())?.tenant_id;
}

/** Those that were revoked, or expired, so long ago that nobody asks any more. */
export async function deleteDeadApiKeys(query: Queryable): Promise<number> {
  const result = await query
    .deleteFrom('api_keys')
    .where(sql<boolean>`least(revoked_at, expires_at) < now() - interval '90 days'`)
    .executeTakeFirst();
  return Number(result.numDeletedRows);
}

export async function deleteExpiredSessions(query: Queryable): Promise<number> {
  const result = await query.deleteFrom('sessions').where('expires_at', '<=', now).executeTakeFirst();
  return Number(result.numDeletedRows);
}

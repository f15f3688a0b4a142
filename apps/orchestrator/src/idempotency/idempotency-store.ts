/** Answers by key, kept for 24 hours. The key is claimed in the transaction that makes the thing: both exist, or neither. */
import { AppError } from '@fuse/contract';
import { sql } from 'kysely';
import { jsonb, type Queryable, type Tx } from '../db/db.ts';
import type { IdempotentRequest } from './idempotency-key.ts';

const KEPT = sql`interval '24 hours'`;

export interface EarlierAnswer {
  resourceId: string;
  response: unknown;
}

/** What the key was used for before; 409 when it was with another body. */
export async function findAnswer(query: Queryable, request: IdempotentRequest): Promise<EarlierAnswer | undefined> {
  const { tenantId, route, key, bodySha256 } = request;
  const row = await query
    .selectFrom('idempotency_keys')
    .select(['body_sha256', 'resource_id', 'response'])
    .where('tenant_id', '=', tenantId)
    .where('route', '=', route)
    .where('key', '=', key)
    .where(sql<boolean>`created_at > now() - ${KEPT}`)
    .executeTakeFirst();
  if (row === undefined) return undefined;
  if (row.body_sha256 !== bodySha256)
    throw new AppError('conflict', 'this Idempotency-Key was used with another body', {
      details: { field: 'Idempotency-Key' },
      hint: 'use a new key for a new request',
    });
  return { resourceId: row.resource_id, response: row.response };
}

/**
 * False when the key is taken: roll back, then `findAnswer`. Waits for a concurrent transaction that holds the same key, so make
 * it the first statement.
 */
export async function claimKey(tx: Tx, request: IdempotentRequest, resourceId: string): Promise<boolean> {
  const { tenantId, route, key, bodySha256 } = request;
  const claimed = await sql`
    insert into idempotency_keys (tenant_id, route, key, body_sha256, resource_id)
    values (${tenantId}, ${route}, ${key}, ${bodySha256}, ${resourceId})
    on conflict (tenant_id, route, key) do update
      set body_sha256 = excluded.body_sha256, resource_id = excluded.resource_id, response = null, created_at = now()
      where idempotency_keys.created_at <= now() - ${KEPT}
    returning key`.execute(tx);
  return claimed.rows.length === 1;
}

export async function recordResponse(tx: Tx, request: IdempotentRequest, response: unknown): Promise<void> {
  await tx
    .updateTable('idempotency_keys')
    .set({ response: jsonb(response) })
    .where('tenant_id', '=', request.tenantId)
    .where('route', '=', request.route)
    .where('key', '=', request.key)
    .execute();
}

export async function deleteExpiredKeys(query: Queryable): Promise<number> {
  const result = await query
    .deleteFrom('idempotency_keys')
    .where(sql<boolean>`created_at <= now() - ${KEPT}`)
    .executeTakeFirst();
  return Number(result.numDeletedRows);
}

/** Free again: nothing came of the request that used it for `resourceId`. */
export async function forgetKey(
  query: Queryable,
  { tenantId, route, key }: IdempotentRequest,
  resourceId: string,
): Promise<void> {
  await query
    .deleteFrom('idempotency_keys')
    .where('tenant_id', '=', tenantId)
    .where('route', '=', route)
    .where('key', '=', key)
    .where('resource_id', '=', resourceId)
    .execute();
}

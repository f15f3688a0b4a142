/**
 * Credentials in the database, where they are hashes alone: what a token or cookie is, and which proofs (http/authentication.ts) are still good. Whatever is revoked,
 * expired, logged out or gone is not found.
 */
import { createHash, createHmac } from 'node:crypto';
import type { Scope } from '@fuse/contract';
import { sql } from 'kysely';
import { channels, notify, now, type Queryable, type Tx } from '../db/db.ts';

export const hashOfToken = (token: string): Buffer => createHash('sha256').update(token).digest();

/** Under the master token: with another one its sessions are none. */
export const hashOfSession = (secret: string, masterToken: string): Buffer =>
  createHmac('sha256', masterToken).update(secret).digest();

const proofOf = (kind: 'api_key' | 'session' | 'environment', value: string | Uint8Array): string =>
  `${kind}:${typeof value === 'string' ? value : Buffer.from(value).toString('hex')}`;

/** Undefined: it is not that of an API key. */
export const keyIdOf = (proof: string): string | undefined => /^api_key:(.+)$/.exec(proof)?.[1];

export interface KnownApiKey {
  proof: string;
  keyId: string;
  tenantId: string;
  isTenantDisabled: boolean;
  scopes: readonly Scope[] | null;
}

/** Notes that it was used, once a minute. */
export async function findApiKey(query: Queryable, hash: Uint8Array): Promise<KnownApiKey | undefined> {
  const row = await query
    .selectFrom('api_keys as k')
    .innerJoin('tenants as t', 't.id', 'k.tenant_id')
    .select(['k.id', 'k.tenant_id', 'k.scopes', 't.disabled_at'])
    .select(sql<boolean>`coalesce(k.last_used_at < now() - interval '1 minute', true)`.as('is_use_news'))
    .where('k.hash', '=', hash)
    .where(isKeyGood)
    .executeTakeFirst();
  if (row === undefined) return undefined;
  if (row.is_use_news)
    await query.updateTable('api_keys').set({ last_used_at: now }).where('id', '=', row.id).execute();
  return {
    proof: proofOf('api_key', row.id),
    keyId: row.id,
    tenantId: row.tenant_id,
    isTenantDisabled: row.disabled_at !== null,
    scopes: row.scopes,
  };
}

const isKeyGood = sql<boolean>`k.revoked_at is null and (k.expires_at is null or k.expires_at > now())`;

export interface KnownEnvironment {
  proof: string;
  environmentUid: string;
  environmentId: string;
  tenantId: string;
  isTenantDisabled: boolean;
}

export async function findEnvironmentByToken(
  query: Queryable,
  hash: Uint8Array,
): Promise<KnownEnvironment | undefined> {
  const row = await query
    .selectFrom('environments as e')
    .innerJoin('tenants as t', 't.id', 'e.tenant_id')
    .select(['e.uid', 'e.id', 'e.tenant_id', 't.disabled_at'])
    .where('e.token_hash', '=', hash)
    .where('e.state', 'not in', ['destroyed', 'failed'])
    .executeTakeFirst();
  if (row === undefined) return undefined;
  return {
    proof: proofOf('environment', hash),
    environmentUid: row.uid,
    environmentId: row.id,
    tenantId: row.tenant_id,
    isTenantDisabled: row.disabled_at !== null,
  };
}

export async function findSession(query: Queryable, hash: Uint8Array): Promise<string | undefined> {
  const row = await query
    .selectFrom('sessions')
    .select('hash')
    .where('hash', '=', hash)
    .where('expires_at', '>', now)
    .executeTakeFirst();
  return row === undefined ? undefined : proofOf('session', hash);
}

export async function hasTenant(query: Queryable, id: string): Promise<boolean> {
  return (await query.selectFrom('tenants').select('id').where('id', '=', id).executeTakeFirst()) !== undefined;
}

/** Those of them that still open anything: those of a disabled tenant do not. */
export async function goodProofs(query: Queryable, proofs: readonly string[]): Promise<ReadonlySet<string>> {
  const { rows } = await sql<{ proof: string }>`
    with asked as (
      select proof, split_part(proof, ':', 1) as kind, split_part(proof, ':', 2) as value
      from jsonb_array_elements_text(${JSON.stringify(proofs)}::jsonb) as given (proof)
    )
    select proof from asked where
      kind = 'api_key' and exists (
        select from api_keys k join tenants t on t.id = k.tenant_id
        where k.id = asked.value and t.disabled_at is null and ${isKeyGood})
      or kind = 'session' and exists (
        select from sessions s where s.hash = decode(case kind when 'session' then value else '' end, 'hex') and s.expires_at > now())
      or kind = 'environment' and exists (
        select from environments e join tenants t on t.id = e.tenant_id
        where e.token_hash = decode(case kind when 'environment' then value else '' end, 'hex')
          and t.disabled_at is null and e.state not in ('destroyed', 'failed'))`.execute(query);
  return new Set(rows.map(({ proof }) => proof));
}

/** In the transaction that revokes, rotates, logs out or disables: every replica looks again at once. */
export const announceCredentials = (tx: Tx): Promise<void> => notify(tx, channels.credentials);

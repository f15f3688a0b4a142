/** An API key: its row, what is shown of it, and how it is made. The key itself is in the answer that makes it and nowhere else. */
import { randomBytes } from 'node:crypto';
import { API_KEY_PREFIX, type ApiKey } from '@fuse/contract';
import type { Selectable } from 'kysely';
import type { ApiKeysTable } from '../db/schema.ts';

export type ApiKeyRow = Omit<Selectable<ApiKeysTable>, 'hash'>;

export const newKeyId = (): string => `ak_${randomBytes(8).toString('hex')}`;
export const newKey = (): string => `${API_KEY_PREFIX}${randomBytes(32).toString('base64url')}`;

export function toApiKey(row: ApiKeyRow): ApiKey {
  return {
    id: row.id,
    ...(row.label === null ? {} : { label: row.label }),
    created_at: row.created_at.toISOString(),
    ...(row.last_used_at === null ? {} : { last_used_at: row.last_used_at.toISOString() }),
    ...(row.revoked_at === null ? {} : { revoked_at: row.revoked_at.toISOString() }),
    ...(row.expires_at === null ? {} : { expires_at: row.expires_at.toISOString() }),
    ...(row.scopes === null ? {} : { scopes: row.scopes }),
    tenant_id: row.tenant_id,
  };
}

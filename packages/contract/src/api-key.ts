/**
 * API keys: api.md section 1.6, and ours: scopes, expiry, tenants.
 *
 *   POST   /v1/api-keys        CreateApiKey, may be absent (M, or scope admin) -> 201 MintedApiKey: the only time that the key is shown
 *   GET    /v1/api-keys                                                       -> ListApiKeys, newest first, revoked ones too
 *   DELETE /v1/api-keys/{id}                                                  -> 204, also repeated | 404
 *
 * A key without scopes is what api.md knows: every route of its tenant but those of the master, exec and attach (403 `unauthorized`). A key with
 * scopes may do what they say and nothing else (403 `unauthorized`, details.scope). Foreign ids are 404. `admin` implies every scope and the keys and
 * audit log of its own tenant; tenants and writes to hosts stay the master's. Keys made by an admin key belong to that key's tenant, and have scopes.
 */
import { z } from 'zod';
import { absentIfNull, Timestamp } from './primitives.ts';
import { TenantId } from './tenant.ts';

export const scopes = [
  'environments:read',
  'environments:write',
  'exec',
  'runs',
  'snapshots',
  'files',
  'ports',
  'hosts:read',
  'admin',
] as const;
export type Scope = (typeof scopes)[number];
export const Scope = z.enum(scopes);

export const API_KEY_PREFIX = 'fuse_sk_';
/** Of the credential that an environment has for itself. */
export const ENVIRONMENT_TOKEN_PREFIX = 'fuse_env_';

export const CreateApiKey = z.object({
  label: absentIfNull(z.string().max(256)),
  /** Absent or empty: a plain key. */
  scopes: absentIfNull(z.array(Scope).max(scopes.length)),
  expires_in_seconds: absentIfNull(z.number().int().min(1).max(315_360_000)),
  /** The master's to say; absent: the caller's tenant. */
  tenant_id: absentIfNull(TenantId),
});
export type CreateApiKey = z.infer<typeof CreateApiKey>;

export const ApiKey = z.object({
  /** `ak_` and 16 hex digits. */
  id: z.string(),
  label: z.string().optional(),
  created_at: Timestamp,
  /** Within a minute. */
  last_used_at: Timestamp.optional(),
  revoked_at: Timestamp.optional(),
  expires_at: Timestamp.optional(),
  /** Absent: a plain key. */
  scopes: z.array(Scope).optional(),
  tenant_id: z.string(),
});
export type ApiKey = z.infer<typeof ApiKey>;

/** `key`: `fuse_sk_` and 43 characters. It is kept nowhere, so an answer that is replayed for its Idempotency-Key is without it. */
export const MintedApiKey = ApiKey.extend({ key: z.string().optional() });
export type MintedApiKey = z.infer<typeof MintedApiKey>;

export const ListApiKeys = z.object({ api_keys: z.array(ApiKey) });
export type ListApiKeys = z.infer<typeof ListApiKeys>;

/** Body of `POST /login` (api.md 1.2). The cookie names a session on the server; it is never the token itself. */
export const Login = z.object({ token: z.string() });
export const SESSION_COOKIE = 'fuse_session';
export const SESSION_SECONDS = 604_800;

/**
 * Making, listing and revoking API keys. The master does it for every tenant, or for the one that `Fuse-Tenant` names; a key of scope `admin` for its own, and what it makes has
 * scopes.
 */
import { type ApiKey, AppError, type CreateApiKey, invalidField, type MintedApiKey } from '@fuse/contract';
import type { Db } from '../db/db.ts';
import type { Caller } from '../http/authentication.ts';
import type { IdempotentRequest } from '../idempotency/idempotency-key.ts';
import { makeOnce } from '../idempotency/make-once.ts';
import { requireTenant } from '../tenants/tenant-store.ts';
import { newKey, newKeyId, toApiKey } from './api-key.ts';
import { countApiKeys, insertApiKey, listApiKeys, revokeApiKey } from './api-key-store.ts';
import { announceCredentials, hashOfToken } from './credential-store.ts';
import type { Credentials } from './credentials.ts';

/** Revoked ones, which stay listed for 90 days, included: lists are not paged. */
const MAX_KEYS = 10_000;

export class ApiKeyService {
  readonly #db: Db;
  readonly #credentials: Credentials;

  constructor(db: Db, credentials: Credentials) {
    this.#db = db;
    this.#credentials = credentials;
  }

  async create(
    caller: Caller,
    request: CreateApiKey,
    idempotent: IdempotentRequest | undefined,
  ): Promise<{ answer: MintedApiKey; replayed: boolean }> {
    const scopes = request.scopes?.length ? [...new Set(request.scopes)] : null;
    if (!caller.isMaster && scopes === null)
      throw invalidField('scopes', 'is required', 'Only the master makes plain keys.');
    const tenantId = request.tenant_id ?? caller.tenantId;
    if (!caller.isMaster && tenantId !== caller.tenantId)
      throw new AppError('unauthorized', 'tenant_id: only the master makes keys of another tenant', { status: 403 });
    const [id, key] = [newKeyId(), newKey()];
    const lifetimeMs = request.expires_in_seconds === undefined ? undefined : request.expires_in_seconds * 1_000;
    return makeOnce<MintedApiKey>(this.#db, idempotent, {
      resourceId: id,
      make: async (tx) => {
        await requireTenant(tx, tenantId, 'tenant_id');
        if ((await countApiKeys(tx, tenantId)) >= MAX_KEYS)
          throw new AppError('conflict', `tenant ${tenantId} has ${MAX_KEYS} API keys`, {
            hint: 'Revoked keys are forgotten after 90 days.',
          });
        const label = request.label || null;
        const row = await insertApiKey(tx, { id, tenantId, hash: hashOfToken(key), label, scopes, lifetimeMs });
        return { ...toApiKey(row), key };
      },
      kept: ({ key: _, ...rest }) => rest,
    });
  }

  /** Of every tenant when none is given. */
  async list(tenantId: string | undefined): Promise<ApiKey[]> {
    return (await listApiKeys(this.#db.query, tenantId)).map(toApiKey);
  }

  /** Resolves with its tenant. */
  async revoke(id: string, tenantId: string | undefined): Promise<string> {
    const owner = await this.#db.transaction(async (tx) => {
      await announceCredentials(tx);
      return revokeApiKey(tx, id, tenantId);
    });
    if (owner === undefined) throw new AppError('not_found', 'api key not found');
    await this.#credentials.refresh();
    return owner;
  }
}

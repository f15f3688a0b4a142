import {
  AppError,
  type CreateTenant,
  DEFAULT_TENANT,
  type Tenant,
  type TenantUsage,
  type UpdateTenant,
} from '@fuse/contract';
import { announceCredentials } from '../api-keys/credential-store.ts';
import type { Credentials } from '../api-keys/credentials.ts';
import { channels, type Db, notify } from '../db/db.ts';
import type { EnvironmentService } from '../environments/environment-service.ts';
import type { IdempotentRequest } from '../idempotency/idempotency-key.ts';
import { makeOnce } from '../idempotency/make-once.ts';
import { changedQuotas, type TenantRow, toTenant } from './tenant.ts';
import { notEmpty } from './tenant-belongings.ts';
import { changedNetworks } from './tenant-networks.ts';
import {
  belongingsOf,
  deleteTenant,
  expireRemains,
  hasRemains,
  insertTenant,
  listTenants,
  lockTenant,
  tenantById,
  updateTenant,
} from './tenant-store.ts';
import { usageOfTenants } from './tenant-usage.ts';

export class TenantService {
  readonly #db: Db;
  readonly #credentials: Credentials;
  readonly #environments: Pick<EnvironmentService, 'enforceTenantNetwork'>;

  constructor(db: Db, credentials: Credentials, environments: Pick<EnvironmentService, 'enforceTenantNetwork'>) {
    this.#db = db;
    this.#credentials = credentials;
    this.#environments = environments;
  }

  create(
    { id, label, quotas, ...given }: CreateTenant,
    idempotent: IdempotentRequest | undefined,
  ): Promise<{ answer: Tenant; replayed: boolean }> {
    const networks = changedNetworks(undefined, given);
    return makeOnce<Tenant>(this.#db, idempotent, {
      resourceId: id,
      make: async (tx) => {
        const row = await insertTenant(tx, {
          id,
          label: label || null,
          quotas: changedQuotas({}, quotas ?? {}),
          networks,
        });
        if (row === undefined)
          throw new AppError('conflict', `tenant ${id} exists already`, { details: { field: 'id' } });
        if (await hasRemains(tx, id))
          throw new AppError('conflict', `tenant ${id} was deleted, and what it left is not collected yet`, {
            details: { field: 'id' },
            hint: 'What is known of its environments is kept for 7 days. Choose another id, or wait.',
          });
        return toTenant(row);
      },
      kept: (tenant) => tenant,
    });
  }

  list(afterId: string | undefined, limit: number): Promise<TenantRow[]> {
    return listTenants(this.#db.query, afterId, limit + 1);
  }

  /** What each of them has now, and what waits. */
  usage(ids: readonly string[]): Promise<Map<string, TenantUsage>> {
    return usageOfTenants(this.#db.query, ids);
  }

  async get(id: string): Promise<Tenant> {
    return toTenant((await tenantById(this.#db.query, id)) ?? missing(id));
  }

  /** Whoever waits for room looks again: a quota may have grown. Another maximum of networks holds for what runs when it resolves. */
  async update(id: string, { label, quotas = {}, disabled, ...given }: UpdateTenant): Promise<Tenant> {
    const row = await this.#db.transaction(async (tx) => {
      const before = (await lockTenant(tx, id)) ?? missing(id);
      await announceCredentials(tx);
      await notify(tx, channels.capacity);
      return updateTenant(tx, id, {
        label: label === undefined ? before.label : label || null,
        quotas: changedQuotas(before.quotas, quotas),
        networks: changedNetworks(before, given),
        isDisabled: disabled ?? before.disabled_at !== null,
      });
    });
    await this.#credentials.refresh();
    if (given.network_max !== undefined) await this.#environments.enforceTenantNetwork(id);
    return toTenant(row);
  }

  /** With its keys, at once. Refused while it has anything that costs something. */
  async remove(id: string): Promise<void> {
    if (id === DEFAULT_TENANT) throw new AppError('conflict', `tenant ${id} is there for good`);
    await this.#db.transaction(async (tx) => {
      if ((await lockTenant(tx, id)) === undefined) missing(id);
      const belongings = await belongingsOf(tx, id);
      if (Object.values(belongings).some((count) => count > 0)) throw notEmpty(id, belongings);
      await expireRemains(tx, id);
      await deleteTenant(tx, id);
      await announceCredentials(tx);
    });
    await this.#credentials.refresh();
  }
}

function missing(id: string): never {
  throw new AppError('not_found', `tenant ${id} not found`);
}

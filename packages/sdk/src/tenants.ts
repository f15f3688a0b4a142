import { type CreateTenant, Tenant, type UpdateTenant } from '@fuse/contract';
import { z } from 'zod';
import { type KeyedOptions, onceUnder } from './once.ts';
import { ALL_PAGES_LIMIT, allPages, listOf, nextCursor } from './pages.ts';
import type { CallOptions } from './run-outputs.ts';
import type { Transport } from './transport.ts';

export interface ListTenantsOptions extends CallOptions {
  limit?: number;
  cursor?: string;
  /** Each with what it has now and what of it waits for room. */
  include?: 'usage' | undefined;
}

const TenantsPage = z.object({ tenants: listOf(Tenant), next_cursor: nextCursor });

const PATH = '/v1/tenants';
const pathOf = (id: string): string => `${PATH}/${encodeURIComponent(id)}`;

/** The operator's customers, each with its quotas. To act in one of them give the client its id as `tenant`. */
export class Tenants {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  create(request: CreateTenant, options: KeyedOptions = {}): Promise<Tenant> {
    return this.#transport.json(Tenant, { method: 'POST', path: PATH, json: request, ...onceUnder(options) });
  }

  get(id: string, options: CallOptions = {}): Promise<Tenant> {
    return this.#transport.json(Tenant, { method: 'GET', path: pathOf(id), repeat: 'freely', ...options });
  }

  list(options: Omit<ListTenantsOptions, 'limit' | 'cursor'> = {}): Promise<Tenant[]> {
    return allPages(async (cursor) => {
      const page = await this.listPage({
        ...options,
        limit: ALL_PAGES_LIMIT,
        ...(cursor === undefined ? {} : { cursor }),
      });
      return { items: page.tenants, nextCursor: page.nextCursor };
    });
  }

  async listPage(options: ListTenantsOptions = {}): Promise<{ tenants: Tenant[]; nextCursor: string | undefined }> {
    const { limit, cursor, include, signal } = options;
    const query = { limit, cursor, include };
    const page = await this.#transport.json(TenantsPage, {
      method: 'GET',
      path: PATH,
      query,
      repeat: 'freely',
      signal,
    });
    return { tenants: page.tenants, nextCursor: page.next_cursor };
  }

  /** What is absent stays; `null` takes a limit or the label away. */
  update(id: string, request: UpdateTenant, options: CallOptions = {}): Promise<Tenant> {
    return this.#transport.json(Tenant, {
      method: 'PATCH',
      path: pathOf(id),
      json: request,
      repeat: 'freely',
      ...options,
    });
  }

  /** `conflict` while anything of it is there. */
  delete(id: string, options: CallOptions = {}): Promise<void> {
    return this.#transport.none({ method: 'DELETE', path: pathOf(id), repeat: 'freely', ...options });
  }
}

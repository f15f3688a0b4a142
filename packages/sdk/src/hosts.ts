import { Host, ListHosts, type RegisterHost } from '@fuse/contract';
import { ALL_PAGES_LIMIT, allPages } from './pages.ts';
import type { CallOptions } from './run-outputs.ts';
import type { Transport } from './transport.ts';

export interface ListHostsOptions extends CallOptions {
  limit?: number;
  cursor?: string;
}

/** The machines that VMs run on. */
export class Hosts {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Replaces what was registered under this id. */
  register(request: RegisterHost, options: CallOptions = {}): Promise<Host> {
    return this.#transport.json(Host, {
      method: 'POST',
      path: '/v1/hosts',
      json: request,
      repeat: 'freely',
      ...options,
    });
  }

  get(id: string, options: CallOptions = {}): Promise<Host> {
    return this.#transport.json(Host, { method: 'GET', path: pathOf(id), repeat: 'freely', ...options });
  }

  list(options: CallOptions = {}): Promise<Host[]> {
    return allPages(async (cursor) => {
      const page = await this.listPage({
        ...options,
        limit: ALL_PAGES_LIMIT,
        ...(cursor === undefined ? {} : { cursor }),
      });
      return { items: page.hosts, nextCursor: page.nextCursor };
    });
  }

  async listPage(options: ListHostsOptions = {}): Promise<{ hosts: Host[]; nextCursor: string | undefined }> {
    const { signal, limit, cursor } = options;
    const page = await this.#transport.json(ListHosts, {
      method: 'GET',
      path: '/v1/hosts',
      query: { limit, cursor },
      repeat: 'freely',
      signal,
    });
    return { hosts: page.hosts, nextCursor: page.next_cursor };
  }

  /** Nothing new is placed there; what runs there goes on. */
  cordon(id: string, options: CallOptions = {}): Promise<void> {
    return this.#act(id, 'cordon', options);
  }

  uncordon(id: string, options: CallOptions = {}): Promise<void> {
    return this.#act(id, 'uncordon', options);
  }

  deregister(id: string, options: CallOptions = {}): Promise<void> {
    return this.#transport.none({ method: 'DELETE', path: pathOf(id), repeat: 'freely', ...options });
  }

  #act(id: string, action: string, options: CallOptions): Promise<void> {
    return this.#transport.none({ method: 'POST', path: pathOf(id), query: { action }, repeat: 'freely', ...options });
  }
}

const pathOf = (id: string): string => `/v1/hosts/${encodeURIComponent(id)}`;

import { Host, JoinToken, type JoinTokenRequest, type RegisterHost } from '@fuse/contract';
import { z } from 'zod';
import { ALL_PAGES_LIMIT, allPages, listOf, nextCursor } from './pages.ts';
import type { CallOptions } from './run-outputs.ts';
import type { Query, Transport } from './transport.ts';

export interface ListHostsOptions extends CallOptions {
  limit?: number;
  cursor?: string;
}

const HostsPage = z.object({ hosts: listOf(Host), next_cursor: nextCursor });

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
    const page = await this.#transport.json(HostsPage, {
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

  /** Nothing new is placed there until `uncordon`; what is there stays until it ends. */
  drain(id: string, options: CallOptions = {}): Promise<void> {
    return this.#act(id, 'drain', options);
  }

  /** Asks it now, and gives what it says of itself. */
  probe(id: string, options: CallOptions = {}): Promise<Host> {
    return this.#transport.json(Host, {
      method: 'POST',
      path: pathOf(id),
      query: { action: 'probe' },
      repeat: 'freely',
      ...options,
    });
  }

  /**
   * It will not come back: its environments and runs end as `failed`, its capacity is given back. While it answers that is a `conflict`, unless
   * `force` is true.
   */
  markLost(id: string, { force = false, ...options }: CallOptions & { force?: boolean } = {}): Promise<void> {
    return this.#act(id, 'lost', options, force ? { force: 'true' } : {});
  }

  /** What a host agent joins with, by itself; shown once. After a lost answer it is not sent again. */
  createJoinToken(request: JoinTokenRequest = {}, options: CallOptions = {}): Promise<JoinToken> {
    return this.#transport.json(JoinToken, {
      method: 'POST',
      path: '/v1/host-join-tokens',
      json: request,
      repeat: 'if-unsent',
      ...options,
    });
  }

  deregister(id: string, options: CallOptions = {}): Promise<void> {
    return this.#transport.none({ method: 'DELETE', path: pathOf(id), repeat: 'freely', ...options });
  }

  #act(id: string, action: string, options: CallOptions, more: Query = {}): Promise<void> {
    const query = { action, ...more };
    return this.#transport.none({ method: 'POST', path: pathOf(id), query, repeat: 'freely', ...options });
  }
}

const pathOf = (id: string): string => `/v1/hosts/${encodeURIComponent(id)}`;

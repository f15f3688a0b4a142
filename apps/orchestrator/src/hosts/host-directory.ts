/** From a host's id to its client, and what the hosts say of themselves. */
import { AppError } from '@fuse/contract';
import type { Fence, HostImage } from '@fuse/host-protocol';
import { type Logger, withDeadline } from '@fuse/runtime';
import type { Db } from '../db/db.ts';
import type { HostRow } from '../db/schema.ts';
import type { EventHub } from '../events/events.ts';
import type { Sealer } from '../secrets/sealer.ts';
import { type HostClient, HostClients } from './host-client.ts';
import type { HostAddress, HostTls } from './host-request.ts';
import { markUnreachable, recordHeartbeat } from './host-states.ts';
import { allHosts, hostById, openHostToken } from './host-store.ts';
import { laterFence } from './later-fence.ts';

const HEARTBEAT_MS = 5_000;
/** So long a host's address and token are taken to be what they were, unless it registers again: every command in an environment asks for them. */
const ADDRESS_FRESH_MS = 1_000;

/** A host agent in this process: connections to its URL are made by `connect`. */
export interface NearHost {
  url: string;
  connect: NonNullable<HostAddress['connect']>;
}

export interface HostReach {
  tls?: HostTls | undefined;
  near?: NearHost | undefined;
}

export class HostDirectory implements AsyncDisposable {
  readonly #db: Db;
  readonly #log: Logger;
  readonly #sealer: Sealer;
  #tls: HostTls | undefined;
  readonly #near: NearHost | undefined;
  readonly #clients = new HostClients();
  readonly #recent = new Map<string, { client: HostClient; readAt: number }>();
  readonly #unwatch: Disposable;
  #changes = 0;

  constructor(db: Db, hub: EventHub, log: Logger, sealer: Sealer, { tls, near }: HostReach = {}) {
    this.#db = db;
    this.#unwatch = hub.watch('host', () => {
      this.#changes += 1;
      this.#recent.clear();
    });
    this.#log = log;
    this.#sealer = sealer;
    this.#tls = tls;
    this.#near = near;
  }

  /** For connections from now on. */
  useTls(tls: HostTls | undefined): void {
    this.#tls = tls;
    this.#recent.clear();
  }

  /** With a fence for what a leader does by itself. */
  clientOf(host: HostRow, fence?: Fence): HostClient {
    const client = this.#clients.for({
      id: host.id,
      url: host.url,
      token: openHostToken(this.#sealer, host),
      tls: this.#tls,
      connect: host.url === this.#near?.url ? this.#near.connect : undefined,
    });
    return fence === undefined ? client : client.fencedBy(fence);
  }

  async client(hostId: string | null): Promise<HostClient> {
    const recent = hostId === null ? undefined : this.#recent.get(hostId);
    const readAt = performance.now();
    const changes = this.#changes;
    if (recent !== undefined && readAt - recent.readAt < ADDRESS_FRESH_MS) return recent.client;
    const row = hostId === null ? undefined : await hostById(this.#db.query, hostId);
    if (row === undefined) throw new AppError('unavailable', 'the host of this environment is no longer registered');
    const client = this.clientOf(row);
    if (changes === this.#changes) this.#recent.set(row.id, { client, readAt });
    return client;
  }

  /** Asks one host how it is and writes that down; false when it did not answer. Waits HEARTBEAT_MS at most. Throws when it has seen a later fence. */
  async heartbeat(host: HostRow, { signal, fence }: { signal?: AbortSignal; fence?: Fence } = {}): Promise<boolean> {
    const client = this.clientOf(host, fence);
    try {
      const heard = await withDeadline(HEARTBEAT_MS, 'heartbeat', (limited) => client.heartbeat(limited), signal);
      await this.#db.transaction((tx) => recordHeartbeat(tx, host.id, heard));
      if (host.unreachable_at !== null) this.#log.info({ host_id: host.id }, 'host is reachable again');
      return true;
    } catch (error) {
      signal?.throwIfAborted();
      if (laterFence(error) !== undefined) throw error;
      this.#log.warn({ err: error, host_id: host.id }, 'host did not answer its heartbeat');
      return false;
    }
  }

  /** Of a host that did not answer: when it was not heard of for `staleMs`, it is unreachable from now on. */
  async noteSilence(host: HostRow, staleMs: number): Promise<void> {
    const isNew = await this.#db.transaction((tx) => markUnreachable(tx, host.id, staleMs));
    if (isNew) this.#log.error({ host_id: host.id, stale_ms: staleMs }, 'host is unreachable');
  }

  /** Every host at once. */
  async heartbeats(): Promise<void> {
    const hosts = await allHosts(this.#db.query);
    await Promise.all(hosts.map((host) => this.heartbeat(host)));
  }

  /** The union over hosts, by name. Of one name with several digests the first host's counts. */
  async images(): Promise<HostImage[]> {
    const byName = new Map<string, HostImage>();
    for (const host of await allHosts(this.#db.query))
      for (const image of host.images) if (!byName.has(image.name)) byName.set(image.name, image);
    return [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#unwatch[Symbol.dispose]();
    await this.#clients[Symbol.asyncDispose]();
  }
}

import { type Image, ListImages } from '@fuse/contract';
import { z } from 'zod';
import { ApiKeys } from './api-keys.ts';
import { Audit } from './audit.ts';
import { Environments } from './environments.ts';
import { FuseError } from './errors.ts';
import { Files } from './files.ts';
import { type FleetStreamEvent, fleetEvents } from './fleet-events.ts';
import { Hosts } from './hosts.ts';
import type { CallOptions } from './run-outputs.ts';
import { type EventsOptions, Runs } from './runs.ts';
import { Snapshots } from './snapshots.ts';
import { Tenants } from './tenants.ts';
import { type Fetch, Transport } from './transport.ts';
import { UsageReports } from './usage.ts';
import { VERSION } from './version.ts';
import { globalWebSockets, type WebSockets } from './web-sockets.ts';

export interface FuseClientOptions {
  /** Where the orchestrator listens, such as `http://127.0.0.1:8080`. Of its path nothing is kept. */
  baseUrl: string;
  token?: string | undefined;
  /** With the master token: the tenant that it acts in. Default: `default`. */
  tenant?: string | undefined;
  fetch?: Fetch;
  /** For one call with all its attempts. Event streams, uploads and bodies of downloads may take longer. Default: none. */
  timeoutMs?: number;
  /** How often a call that is safe to repeat is made again. Default 3. */
  retries?: number;
  /** Makes the X-Request-ID of each request. */
  requestId?: () => string;
  headers?: Record<string, string>;
  userAgent?: string;
  /** For terminals, ports and displays. Default: the platform's own, with tickets; `nodeWebSockets()` of `@fuse/sdk/node` sends the token itself. */
  webSockets?: WebSockets | undefined;
  /** In [0, 1); for tests. */
  random?: () => number;
}

export interface ServerVersion {
  service: string;
  version: string;
}

const Version = z.object({ service: z.string(), version: z.string() });

export class FuseClient {
  readonly runs: Runs;
  readonly environments: Environments;
  readonly snapshots: Snapshots;
  readonly files: Files;
  readonly hosts: Hosts;
  readonly apiKeys: ApiKeys;
  readonly tenants: Tenants;
  readonly usage: UsageReports;
  readonly audit: Audit;
  readonly images: { list(options?: CallOptions): Promise<Image[]> };
  readonly #transport: Transport;

  constructor(options: FuseClientOptions) {
    const transport = new Transport({
      baseUrl: parseBaseUrl(options.baseUrl),
      token: options.token,
      tenant: options.tenant,
      fetch: options.fetch ?? ((url, init) => fetch(url, init)),
      userAgent: options.userAgent ?? `fuse-ts/${VERSION}`,
      requestId: options.requestId,
      headers: options.headers ?? {},
      timeoutMs: options.timeoutMs,
      retries: options.retries ?? 3,
      random: options.random ?? Math.random,
      webSockets: options.webSockets ?? globalWebSockets,
    });
    this.#transport = transport;
    this.runs = new Runs(transport);
    this.environments = new Environments(transport);
    this.snapshots = new Snapshots(transport);
    this.files = new Files(transport);
    this.hosts = new Hosts(transport);
    this.apiKeys = new ApiKeys(transport);
    this.tenants = new Tenants(transport);
    this.usage = new UsageReports(transport);
    this.audit = new Audit(transport);
    this.images = {
      list: async (call = {}) => {
        const answer = await transport.json(ListImages, {
          method: 'GET',
          path: '/v1/images',
          repeat: 'freely',
          ...call,
        });
        return answer.images;
      },
    };
  }

  /**
   * The events of all environments, without an end: from now on, or after `lastEventId`. Lost connections are made again by themselves, and then go on where they were;
   * `reset` says that this was not possible.
   */
  events(options: EventsOptions = {}): AsyncGenerator<FleetStreamEvent, void> {
    return fleetEvents(this.#transport, options);
  }

  /** As Prometheus reads them; needs no token. */
  metrics(options: CallOptions = {}): Promise<string> {
    return this.#transport.text({ method: 'GET', path: '/metrics', repeat: 'freely', ...options });
  }

  /** What answers there; needs no token. */
  version(options: CallOptions = {}): Promise<ServerVersion> {
    return this.#transport.json(Version, { method: 'GET', path: '/v1/version', repeat: 'freely', ...options });
  }
}

function parseBaseUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol === 'http:' || url?.protocol === 'https:') return url;
  throw new FuseError(`baseUrl ${JSON.stringify(text)} is not an http or https URL`);
}

/**
 * Requests that become connections: terminals, execs, tunnels. Node hands over every request that asks for an upgrade once there is a listener,
 * before routing: what no route here takes is parsed again as an ordinary request.
 */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { AppError, FRAME_HEADER_BYTES, MAX_FRAME_PAYLOAD_BYTES } from '@fuse/contract';
import { sleep } from '@fuse/runtime';
import { WebSocketServer } from 'ws';
import { actorOf, remoteOf } from '../audit/audit-requests.ts';
import { type Caller, NOBODY, requireOwnEnvironment, requireScope } from './authentication.ts';
import { ClientGone } from './closing.ts';
import { endingOf, INTERNAL } from './endings.ts';
import { CLIENT_CLOSED_REQUEST } from './error-responses.ts';
import type { App, HttpServerOptions } from './http-server.ts';
import { LINGER_MS, type Peer, ServerStops } from './peer.ts';
import { RawPeer } from './raw-peer.ts';
import { refuseUpgrade } from './refuse-upgrade.ts';
import { replayRequest } from './replay-request.ts';
import { chooseRequestId } from './response-headers.ts';
import { type UpgradeRoute, WEBSOCKET } from './upgrade-route.ts';
import { requireHandshake } from './websocket-handshake.ts';
import { WebSocketPeer } from './websocket-peer.ts';

declare module 'fastify' {
  interface FastifyInstance {
    upgrades: Upgrades;
  }
}

const KEEPALIVE_MS = 15_000;

type Options = Pick<
  HttpServerOptions,
  'version' | 'authenticator' | 'allowList' | 'rateLimiter' | 'audit' | 'log' | 'metrics'
>;

interface Incoming {
  request: IncomingMessage;
  socket: Socket;
  head: Buffer;
  path: string;
  params: Record<string, string>;
  query: URLSearchParams;
}

export function installUpgrades(app: App, options: Options): void {
  const upgrades = new Upgrades(options);
  app.decorate('upgrades', upgrades);
  app.server.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) => {
    const incoming = upgrades.match(request);
    if (incoming === undefined) replayRequest(app.server, request, socket, head);
    else upgrades.serve(incoming.route, { request, socket, head, ...incoming });
  });
  app.addHook('preClose', () => upgrades.stop());
}

export class Upgrades {
  readonly #options: Options;
  readonly #routes: { route: UpgradeRoute; pattern: RegExp }[] = [];
  readonly #open = new Map<Socket, { promise: Promise<void>; gone: AbortController }>();
  readonly #webSockets = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: MAX_FRAME_PAYLOAD_BYTES + FRAME_HEADER_BYTES,
  });
  #stopping = false;

  constructor(options: Options) {
    this.#options = options;
  }

  get routes(): UpgradeRoute[] {
    return this.#routes.map(({ route }) => route);
  }

  add(route: UpgradeRoute): void {
    const segments = route.path.split('/').map((part) => (part.startsWith(':') ? `(?<${part.slice(1)}>[^/]+)` : part));
    this.#routes.push({ route, pattern: new RegExp(`^${segments.join('/')}$`) });
  }

  match(request: IncomingMessage): ({ route: UpgradeRoute } & Pick<Incoming, 'path' | 'params' | 'query'>) | undefined {
    const protocol = request.headers.upgrade?.toLowerCase() ?? '';
    const [path = '', ...rest] = (request.url ?? '').split('?');
    if (request.method !== 'GET') return undefined;
    for (const { route, pattern } of this.#routes) {
      const params = route.protocols.includes(protocol) ? decoded(pattern.exec(path)?.groups) : undefined;
      if (params !== undefined) return { route, path, params, query: new URLSearchParams(rest.join('?')) };
    }
    return undefined;
  }

  serve(route: UpgradeRoute, incoming: Incoming): void {
    const { socket } = incoming;
    const gone = new AbortController();
    socket.on('error', () => {}); // whoever reads or writes it learns of it
    // At once: a client that has ended may have done so for this socket by the time that it is accepted.
    if (incoming.head.length > 0) socket.unshift(incoming.head);
    socket.once('close', () => gone.abort(new ClientGone('the client closed the connection')));
    socket.setTimeout(0).setNoDelay(true).setKeepAlive(true, KEEPALIVE_MS);
    const promise = this.#serve(route, incoming, gone).finally(() => this.#open.delete(socket));
    this.#open.set(socket, { promise, gone });
  }

  async #serve(route: UpgradeRoute, incoming: Incoming, gone: AbortController): Promise<void> {
    const { signal } = gone;
    const { metrics, version } = this.#options;
    const startedAt = performance.now();
    const requestId = chooseRequestId(incoming.request);
    const log = this.#options.log.child({ request_id: requestId });
    const protocol = incoming.request.headers.upgrade?.toLowerCase() ?? '';
    let peer: Peer | undefined;
    let held: Disposable | undefined;
    let status = 101;
    let ended: string;
    let code: string | undefined;
    let caller = NOBODY;
    let audited: Promise<void> | undefined;
    const remote = remoteOf(incoming.socket.remoteAddress); // before it is closed
    const audit = () => {
      const { params } = incoming;
      audited ??= this.#options.audit?.append({
        ...actorOf(caller),
        method: 'GET',
        route: `GET ${route.path}`,
        target: Object.values(params).join('/'),
        status,
        ...(code === undefined ? {} : { code }),
        request_id: requestId,
        ...remote,
      });
    };
    try {
      if (this.#stopping) throw new ServerStops();
      this.#options.allowList?.check(incoming.socket.remoteAddress);
      caller = await this.#authenticate(route, incoming, protocol);
      this.#options.rateLimiter?.take(caller);
      requireScope(caller, route.scope);
      requireOwnEnvironment(caller, route.path, incoming.params);
      if (caller.proof !== undefined)
        held = this.#options.authenticator.hold(caller.proof, () => gone.abort(revoked()));
      if (protocol === WEBSOCKET) requireHandshake(incoming.request);
      const { params, query } = incoming;
      const accept = () => {
        signal.throwIfAborted();
        peer = this.#accept(route, incoming, protocol);
        metrics.connectionsOpen.inc({ route: route.path });
        audit();
        return peer;
      };
      const ending = await route.handle({ protocol, params, query, caller, log, signal, accept });
      if (peer === undefined) throw new Error(`${route.path}: neither accepted nor refused`);
      ended = ending.reason;
      peer.close(ending);
    } catch (error) {
      const cause: unknown = signal.aborted ? signal.reason : error;
      if (peer === undefined) {
        ({ status, ended } = refuseUpgrade(incoming.socket, cause, { log, requestId, version }));
        code = status === CLIENT_CLOSED_REQUEST ? undefined : ended;
        audit();
      } else {
        const ending = endingOf(cause);
        if (ending.code === INTERNAL) log.error({ err: error, route: route.path }, 'connection failed');
        ended = ending.reason;
        peer.close(ending);
      }
    }
    held?.[Symbol.dispose]();
    await audited;
    const received_bytes = peer?.receivedBytes ?? 0;
    const sent_bytes = peer?.sentBytes ?? 0;
    if (peer !== undefined) metrics.connectionsOpen.dec({ route: route.path });
    metrics.requests.inc({ route: route.path, method: 'GET', code: String(status) });
    metrics.connectionBytes.inc({ route: route.path, direction: 'received' }, received_bytes);
    metrics.connectionBytes.inc({ route: route.path, direction: 'sent' }, sent_bytes);
    const duration_ms = Math.round((performance.now() - startedAt) * 10) / 10;
    const { path } = incoming; // without the query, which may hold a ticket
    const fields = { method: 'GET', route: route.path, path, protocol, status, duration_ms };
    log.info({ ...fields, received_bytes, sent_bytes, ended }, 'connection');
  }

  async #authenticate(route: UpgradeRoute, { request, params, query }: Incoming, protocol: string): Promise<Caller> {
    const ticket = query.get('ticket');
    if (protocol === WEBSOCKET && ticket !== null && request.headers.authorization === undefined)
      return route.redeemTicket(ticket, { params, query });
    return this.#options.authenticator.authenticate(request.headers, true);
  }

  #accept(route: UpgradeRoute, { request, socket }: Incoming, protocol: string): Peer {
    if (protocol !== WEBSOCKET) return new RawPeer(socket, protocol);
    let peer: Peer | undefined;
    this.#webSockets.handleUpgrade(request, socket, Buffer.alloc(0), (ws) => {
      peer = new WebSocketPeer(ws, { halfCloses: route.halfCloses ?? false });
    });
    if (peer === undefined) throw new ClientGone('the client closed the connection');
    return peer;
  }

  /** Everything that is open ends; nothing is left when it resolves. */
  async stop(): Promise<void> {
    this.#stopping = true;
    const open = [...this.#open];
    for (const [, { gone }] of open) gone.abort(new ServerStops());
    const late = new AbortController();
    const ended = Promise.allSettled(open.map(([, { promise }]) => promise));
    await Promise.race([ended, sleep(2 * LINGER_MS, late.signal).catch(() => {})]);
    late.abort();
    for (const [socket] of this.#open) socket.destroy();
  }
}

const revoked = () => new AppError('unauthorized', 'the credential of this connection is good no more');

function decoded(groups: Record<string, string> | undefined): Record<string, string> | undefined {
  if (groups === undefined) return undefined;
  try {
    return Object.fromEntries(Object.entries(groups).map(([name, value]) => [name, decodeURIComponent(value)]));
  } catch {
    return undefined;
  }
}

/**
 * Requests that become a connection of another protocol. A handler checks what it needs while the client waits, and accepts; what it throws
 * before that is answered as the envelope of the contract, later it cuts the connection. A request that asks for an upgrade which its path does
 * not have is an ordinary one (RFC 9110, 7.8).
 */
import type { IncomingMessage, Server } from 'node:http';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { type AppError, toEnvelope } from '@fuse/contract';
import { type Logger, newRequestId } from '@fuse/runtime';
import { bearerCheck } from './auth.ts';
import { CallerGone } from './caller-signal.ts';
import { toAppError } from './errors.ts';

/** How long a connection may last once the host agent stops: time for its last bytes. */
const END_GRACE_MS = 1_000;
/** How long what was written last may wait for the other side to read it. */
const FLUSH_MS = 30_000;

export interface UpgradeRequest {
  /** Of the pattern, decoded; nothing about them is checked. */
  params: Record<string, string>;
  query: URLSearchParams;
  log: Logger;
  /** Aborts when the connection is gone, or the host agent stops. */
  signal: AbortSignal;
  /**
   * Writes the 101. What the client sent behind its request is read from the socket first. The socket half-closes: both ends are the
   * handler's to end, and it is destroyed once the handler returns.
   */
  accept(): Socket;
}

export type UpgradeHandler = (upgrade: UpgradeRequest) => Promise<void>;

interface Route {
  segments: string[];
  protocol: string;
  handler: UpgradeHandler;
}

export class Upgrades {
  readonly #log: Logger;
  readonly #checkBearer: (authorization: string | undefined) => void;
  readonly #stopping: AbortSignal;
  readonly #routes: Route[] = [];

  constructor(parts: { log: Logger; token: string; stopping: AbortSignal }) {
    this.#log = parts.log;
    this.#checkBearer = bearerCheck(parts.token);
    this.#stopping = parts.stopping;
  }

  /** `GET <pattern>` with `Upgrade: <protocol>`; ":name" in the pattern is one segment. */
  on(pattern: string, protocol: string, handler: UpgradeHandler): void {
    this.#routes.push({ segments: pattern.split('/'), protocol: protocol.toLowerCase(), handler });
  }

  listen(server: Server): void {
    server.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) => {
      socket.on('error', () => {}); // whoever reads or writes it learns of it
      const [path = '', query = ''] = (request.url ?? '').split('?', 2);
      const protocol = request.headers.upgrade?.trim().toLowerCase();
      const route = this.#routes.find((each) => each.protocol === protocol && paramsOf(each, path) !== undefined);
      if (route === undefined || request.method !== 'GET') return replay(server, request, socket, head);
      void this.#serve(route, { request, socket, head, path, query: new URLSearchParams(query) });
    });
  }

  async #serve(
    route: Route,
    { request, socket, head, path, query }: Incoming & { path: string; query: URLSearchParams },
  ): Promise<void> {
    const from = performance.now();
    const log = this.#log.child({ request_id: newRequestId() });
    const gone = new AbortController();
    const onStopping = () => {
      gone.abort(this.#stopping.reason);
      setTimeout(() => socket.destroy(), END_GRACE_MS).unref();
    };
    socket.once('close', () => gone.abort(new CallerGone()));
    socket.setNoDelay(true);
    let status = 101;
    let accepted = false;
    try {
      this.#checkBearer(request.headers.authorization);
      this.#stopping.throwIfAborted();
      this.#stopping.addEventListener('abort', onStopping, { once: true });
      const accept = (): Socket => {
        accepted = true;
        if (head.length > 0) socket.unshift(head);
        socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: ${route.protocol}\r\nConnection: Upgrade\r\n\r\n`);
        return socket;
      };
      await route.handler({ params: paramsOf(route, path) ?? {}, query, log, signal: gone.signal, accept });
      if (!accepted) throw new Error('an upgrade was neither accepted nor refused');
      await flushed(socket);
      socket.destroy();
    } catch (error) {
      if (accepted) log.debug({ err: error }, 'upgraded connection cut');
      status = accepted ? 101 : refuse(log, socket, toAppError(error), error);
      if (accepted) socket.destroy();
    } finally {
      this.#stopping.removeEventListener('abort', onStopping);
      const duration_ms = Math.round((performance.now() - from) * 10) / 10;
      log.debug({ method: 'GET', path: request.url, status, duration_ms }, 'upgrade');
    }
  }
}

/** Ended, by its handler or here, and handed on to the last byte; or cut, or given up. */
function flushed(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    if (socket.writableFinished || socket.destroyed) return resolve();
    const giveUp = setTimeout(resolve, FLUSH_MS).unref();
    const done = () => {
      clearTimeout(giveUp);
      resolve();
    };
    socket.once('close', done).end(done);
  });
}

interface Incoming {
  request: IncomingMessage;
  socket: Socket;
  head: Buffer;
}

function paramsOf(route: Route, path: string): Record<string, string> | undefined {
  const given = path.split('/');
  if (given.length !== route.segments.length) return undefined;
  const params: Record<string, string> = {};
  for (const [at, segment] of route.segments.entries()) {
    const value = given[at] ?? '';
    if (!segment.startsWith(':')) {
      if (segment !== value) return undefined;
      continue;
    }
    try {
      params[segment.slice(1)] = decodeURIComponent(value);
    } catch {
      return undefined;
    }
  }
  return params;
}

function refuse(log: Logger, socket: Socket, shown: AppError, error: unknown): number {
  if (error instanceof CallerGone) log.debug('the caller has gone');
  else if (shown.code === 'internal') log.error({ err: error }, 'upgrade failed');
  else if (shown.status >= 500) log.warn({ err: error }, 'upgrade refused');
  const body = JSON.stringify(toEnvelope(shown));
  const head = [
    `HTTP/1.1 ${shown.status} ${shown.code}`,
    'content-type: application/json; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    ...(shown.retryAfterSeconds === undefined ? [] : [`retry-after: ${shown.retryAfterSeconds}`]),
    'connection: close',
  ];
  if (socket.writable) socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroySoon());
  socket.resume();
  return shown.status;
}

/** The same request again to Node's own parser, without the wish. */
function replay(server: Server, request: IncomingMessage, socket: Socket, head: Buffer): void {
  const lines = [`${request.method} ${request.url} HTTP/${request.httpVersion}`];
  for (let at = 0; at + 1 < request.rawHeaders.length; at += 2) {
    const name = request.rawHeaders[at] ?? '';
    if (!['upgrade', 'connection'].includes(name.toLowerCase())) lines.push(`${name}: ${request.rawHeaders[at + 1]}`);
  }
  if (head.length > 0) socket.unshift(head);
  socket.unshift(Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'));
  server.emit(socket instanceof TLSSocket ? 'secureConnection' : 'connection', socket);
}

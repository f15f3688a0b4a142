/**
 * Serves the page of one display, below a path that nobody can guess. Whoever knows the path may use the display; other sites' pages, and names that were pointed at
 * this machine, are refused.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type OutgoingHttpHeaders, type Server } from 'node:http';
import { type AddressInfo, isIPv6 } from 'node:net';
import type { Duplex } from 'node:stream';
import type { ByteConnection } from '@fuse/sdk';
import { type WebSocket, WebSocketServer } from 'ws';
import type { ListenAddress } from '../args/listen.ts';
import { isAllowedHost } from './allowed-host.ts';
import { bridge } from './bridge.ts';
import { noVncFile, pageHtml, pagePolicy } from './page.ts';

/** Of the page's messages: noVNC's are small, a pasted text may be long. */
const MAX_MESSAGE_BYTES = 1_048_576;

export interface DesktopOptions {
  environmentId: string;
  viewOnly: boolean;
  listen: ListenAddress;
  open: (signal: AbortSignal) => Promise<ByteConnection>;
  /** A display that could not be reached, or was cut. Other pages go on. */
  onError: (error: unknown) => void;
  reasonOf: (error: unknown) => string;
}

interface Page {
  status: number;
  headers?: OutgoingHttpHeaders;
  body?: string | Buffer;
}

const NOT_HERE: Page = { status: 404, body: 'not found\n' };

export class DesktopServer implements AsyncDisposable {
  readonly #options: DesktopOptions;
  readonly #token = randomBytes(32).toString('base64url');
  /** Opens the page once: what a browser is started with is in the list of processes, for all to read. */
  #firstToken: string | undefined = randomBytes(32).toString('base64url');
  readonly #ending = new AbortController();
  readonly #bridges = new Set<Promise<void>>();
  readonly #webSockets = new WebSocketServer({
    noServer: true,
    perMessageDeflate: false,
    maxPayload: MAX_MESSAGE_BYTES,
  });
  readonly #server: Server;
  #address = '';
  #origin = '';

  private constructor(options: DesktopOptions) {
    this.#options = options;
    this.#server = createServer((request, response) => {
      this.#answer(request)
        .catch((): Page => ({ status: 500, body: 'the page could not be read\n' }))
        .then(({ status, headers, body }) => {
          response.writeHead(status, {
            'Cache-Control': 'no-store',
            'Referrer-Policy': 'no-referrer',
            'X-Content-Type-Options': 'nosniff',
            ...headers,
          });
          response.end(body);
        });
    });
    this.#server.on('upgrade', (request, socket, head) => this.#upgrade(request, socket, head));
  }

  /** Rejects with Node's error when it cannot listen. */
  static async start(options: DesktopOptions): Promise<DesktopServer> {
    const desktop = new DesktopServer(options);
    desktop.#server.listen(options.listen.port, options.listen.host);
    await once(desktop.#server, 'listening');
    const { address, port } = desktop.#server.address() as AddressInfo; // it listens on TCP
    desktop.#address = address;
    desktop.#origin = `http://${isIPv6(address) ? `[${address}]` : address}:${port}`;
    return desktop;
  }

  get url(): string {
    return `${this.#origin}/${this.#token}/`;
  }

  /** The same page; it is good for one visit. */
  get firstUrl(): string {
    return `${this.#origin}/${this.#firstToken}/`;
  }

  async close(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#ending.abort();
    await Promise.allSettled(this.#bridges);
    for (const page of this.#webSockets.clients) page.terminate();
    this.#server.closeAllConnections();
    await closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #answer(request: IncomingMessage): Promise<Page> {
    const path = this.#pathOf(request);
    const { origin, host = '' } = request.headers;
    if (path === undefined || (origin !== undefined && !isOf(host, origin))) return NOT_HERE;
    if (request.method !== 'GET' && request.method !== 'HEAD')
      return { status: 405, headers: { Allow: 'GET, HEAD' }, body: 'method not allowed\n' };
    if (path === 'first') return { status: 303, headers: { Location: `/${this.#token}/` } };
    if (path === '') {
      const nonce = randomBytes(16).toString('base64url');
      const headers = {
        'Content-Type': 'text/html; charset=utf-8',
        'Content-Security-Policy': pagePolicy(nonce, host),
      };
      return { status: 200, headers, body: pageHtml({ ...this.#options, nonce }) };
    }
    const file = path.startsWith('novnc/') ? noVncFile(path.slice('novnc/'.length)) : undefined;
    const script = file === undefined ? undefined : await readFile(file).catch(ifMissing);
    if (script === undefined) return NOT_HERE;
    return { status: 200, headers: { 'Content-Type': 'text/javascript; charset=utf-8' }, body: script };
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    socket.on('error', () => {}); // the page has left
    const { origin, host = '' } = request.headers;
    if (this.#pathOf(request) !== 'stream' || origin === undefined || !isOf(host, origin)) {
      socket.end('HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n', () => socket.destroy());
      return;
    }
    this.#webSockets.handleUpgrade(request, socket, head, (page) => this.#show(page));
  }

  #show(page: WebSocket): void {
    const { open, onError, reasonOf } = this.#options;
    const bridged = bridge(page, open, { signal: this.#ending.signal, reasonOf })
      .catch(onError)
      .finally(() => this.#bridges.delete(bridged));
    this.#bridges.add(bridged);
  }

  /** Below the path of the token; undefined: not below it, or asked for by another name. */
  #pathOf({ headers, url = '' }: IncomingMessage): string | undefined {
    if (!isAllowedHost(headers.host, [this.#address, this.#options.listen.host.toLowerCase()])) return undefined;
    const [, token = '', path] = /^\/([\w-]+)\/([^?#]*)/.exec(url) ?? [];
    if (isSame(token, this.#token)) return path;
    if (path !== '' || this.#firstToken === undefined || !isSame(token, this.#firstToken)) return undefined;
    this.#firstToken = undefined;
    return 'first';
  }
}

const isOf = (host: string, origin: string): boolean => origin.toLowerCase() === `http://${host.toLowerCase()}`;

const isSame = (one: string, other: string): boolean =>
  one.length === other.length && timingSafeEqual(Buffer.from(one), Buffer.from(other));

function ifMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}

import type { Scope } from '@fuse/contract';
import type { Logger } from '@fuse/runtime';
import type { Caller } from './authentication.ts';
import type { Ending, Peer } from './peer.ts';

export interface UpgradeRequest {
  /** One of the route's, in lower case. */
  protocol: string;
  /** Of the path, decoded. */
  params: Record<string, string>;
  query: URLSearchParams;
  caller: Caller;
  log: Logger;
  /** Aborted with ClientGone when the connection is cut, with ServerStops when the server stops, with a 401 when the caller's credential is good no more. */
  signal: AbortSignal;
  /** Switches. What is wrong is to be thrown before: it is answered as everywhere; later it closes the connection. */
  accept(): Peer;
}

/** `GET path` that becomes a connection. Asked for without one of its protocols it is an ordinary request of that path. */
export interface UpgradeRoute {
  /** As the router's: `/v1/things/:id`. */
  path: string;
  protocols: readonly string[];
  scope: Scope;
  /** WebSockets may bring `?ticket=` in place of a token. Throws 401. */
  redeemTicket(ticket: string, request: Pick<UpgradeRequest, 'params' | 'query'>): Promise<Caller>;
  /** A WebSocket's text message `end` half-closes it. */
  halfCloses?: true;
  /** Resolves, once it was accepted, with how it ended. */
  handle(request: UpgradeRequest): Promise<Ending>;
}

export const WEBSOCKET = 'websocket';

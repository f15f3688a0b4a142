/** The client's side of an upgraded connection, the same whether it is raw or a WebSocket. Nothing is read ahead of whoever takes it, nothing is written ahead of the client. */
export interface Peer {
  /** What it sends, in pieces cut anywhere. Ends when it says that no more comes, rejects with ClientGone when it is cut. */
  received(): AsyncIterable<Uint8Array>;
  /** Resolves once there is room for more, rejects with ClientGone. A WebSocket's message is one call. */
  send(bytes: Uint8Array): Promise<void>;
  /** No more is sent. The other direction goes on. */
  sendEnd(): void;
  /** For good. What was sent has a moment to arrive; a raw connection that does not end as it should is reset. */
  close(ending: Ending): void;
  readonly receivedBytes: number;
  readonly sentBytes: number;
}

/** Code and reason as a WebSocket's; for raw connections only `done` differs from all others. */
export interface Ending {
  code: number;
  reason: string;
}

/** How long a client may take to read the last of it and to close its side. */
export const LINGER_MS = 2_000;

/** The server stops: what is open ends, so that its clients come back to another one. */
export class ServerStops extends Error {
  override readonly name = 'ServerStops';
}

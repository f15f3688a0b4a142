import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import type { FuseClient } from '../client.ts';
import type { CallOptions } from '../run-outputs.ts';
import { drained } from './drained.ts';

export interface ForwardPortOptions extends CallOptions {
  remotePort: number;
  /** Default: a free one. */
  localPort?: number;
  /** Where to listen. Default 127.0.0.1. */
  host?: string;
  /** A connection that could not be made, or broke. Its local side has been reset; the others go on. */
  onError?: (error: unknown) => void;
}

/** A local TCP server whose connections end at a port of the guest's loopback. */
export class ForwardedPort implements AsyncDisposable {
  readonly host: string;
  readonly localPort: number;
  readonly remotePort: number;
  readonly #server: Server;
  readonly #ending: AbortController;

  constructor(server: Server, remotePort: number, ending: AbortController) {
    const { address, port } = server.address() as AddressInfo; // it listens on TCP
    this.host = address;
    this.localPort = port;
    this.remotePort = remotePort;
    this.#server = server;
    this.#ending = ending;
  }

  /** Stops to listen and ends what is open. */
  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    if (!this.#server.listening) return;
    this.#server.close();
    this.#ending.abort(new Error('the forwarded port was closed'));
    await closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

export async function forwardPort(
  client: FuseClient,
  environmentId: string,
  options: ForwardPortOptions,
): Promise<ForwardedPort> {
  const { remotePort, localPort = 0, host = '127.0.0.1', onError, signal } = options;
  signal?.throwIfAborted();
  const ending = new AbortController();
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    socket.on('error', () => {}); // whoever reads or writes it learns of it
    tunnel(client, environmentId, remotePort, socket, ending.signal).catch((error: unknown) => {
      socket.resetAndDestroy();
      if (!ending.signal.aborted) onError?.(error);
    });
  });
  server.listen(localPort, host);
  await once(server, 'listening');
  const forwarded = new ForwardedPort(server, remotePort, ending);
  const close = () => void forwarded.close();
  signal?.addEventListener('abort', close, { once: true });
  server.once('close', () => signal?.removeEventListener('abort', close));
  return forwarded;
}

async function tunnel(
  client: FuseClient,
  environmentId: string,
  port: number,
  socket: Socket,
  ending: AbortSignal,
): Promise<void> {
  const gone = new AbortController();
  const leave = () => gone.abort(new Error('the local connection was cut'));
  const signal = AbortSignal.any([ending, gone.signal]);
  const connection = await client.environments.connectPort(environmentId, port, { signal });
  const cut = () => {
    connection.close();
    socket.destroy();
  };
  socket.once('close', leave);
  signal.addEventListener('abort', cut, { once: true });
  if (signal.aborted || socket.destroyed) cut();
  try {
    await Promise.all([toGuest(socket, connection.writable), toLocal(connection.readable, socket)]);
  } finally {
    signal.removeEventListener('abort', cut);
    connection.close();
  }
}

async function toGuest(socket: Socket, writable: WritableStream<Uint8Array>): Promise<void> {
  const writer = writable.getWriter();
  for await (const chunk of socket.iterator({ destroyOnReturn: false }) as AsyncIterable<Uint8Array>)
    await writer.write(chunk);
  await writer.close();
}

async function toLocal(readable: ReadableStream<Uint8Array>, socket: Socket): Promise<void> {
  for await (const chunk of readable) if (!socket.write(chunk)) await drained(socket);
  socket.end();
}

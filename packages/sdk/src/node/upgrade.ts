/** `Upgrade` to a protocol of raw bytes. */
import type { ClientRequest, IncomingMessage, RequestOptions } from 'node:http';
import type { Socket } from 'node:net';
import { FuseConnectionError, FuseError } from '../errors.ts';
import type { ByteConnection } from '../web-sockets.ts';
import { drained } from './drained.ts';
import { refusal } from './refusal.ts';

/** A display may be silent for long; a peer that is gone has to be told from it. */
const KEEP_ALIVE_MS = 15_000;

export async function upgrade(
  url: URL,
  protocol: string,
  { headers, signal }: { headers: Record<string, string>; signal?: AbortSignal | undefined },
): Promise<ByteConnection> {
  const { request: send } = await (url.protocol === 'https:' ? import('node:https') : import('node:http'));
  signal?.throwIfAborted();
  // `allowHalfOpen` reaches the socket through an agent of its own, which `false` makes.
  const options: RequestOptions & { allowHalfOpen: boolean } = {
    headers: { ...headers, connection: 'Upgrade', upgrade: protocol },
    agent: false,
    allowHalfOpen: true,
  };
  const request = send(url, options);
  let sent = false;
  request.once('socket', (socket) =>
    socket.once('connect', () => {
      sent = true;
    }),
  );
  const abort = () => void request.destroy();
  signal?.addEventListener('abort', abort, { once: true });
  try {
    const socket = await switched(request, url, protocol);
    return connectionOver(socket, url, signal);
  } catch (error) {
    request.destroy();
    if (signal?.aborted) throw signal.reason;
    throw error instanceof FuseError ? error : connectionError(url, error, sent);
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}

function switched(request: ClientRequest, url: URL, protocol: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    request.on('error', reject);
    request.once('response', (response: IncomingMessage) => {
      if ((response.statusCode ?? 0) < 400) reject(notSwitched(url, protocol));
      else refusal(response).then(reject, reject);
    });
    request.once('upgrade', (response: IncomingMessage, socket: Socket, head: Buffer) => {
      socket.on('error', () => {}); // whoever reads or writes it learns of it
      if (response.headers.upgrade?.toLowerCase() !== protocol) {
        socket.destroy();
        reject(notSwitched(url, protocol));
        return;
      }
      if (head.length > 0) socket.unshift(head);
      resolve(socket.setNoDelay(true).setKeepAlive(true, KEEP_ALIVE_MS).setTimeout(0));
    });
    request.end();
  });
}

const notSwitched = ({ pathname }: URL, protocol: string) =>
  new FuseError(`${pathname}: the server did not switch to ${protocol}`);

function connectionError({ pathname }: URL, cause: unknown, sent: boolean): FuseConnectionError {
  const { message = '', code = '' } = cause as { message?: string; code?: string }; // one of Node's; several addresses tried have a code alone
  return new FuseConnectionError(`${pathname}: ${message || code}`, { cause, sent });
}

function connectionOver(socket: Socket, url: URL, signal: AbortSignal | undefined): ByteConnection {
  const abort = () => void socket.destroy();
  let over = false;
  const close = () => {
    over = true;
    socket.destroy();
  };
  signal?.addEventListener('abort', abort, { once: true });
  socket.once('close', () => signal?.removeEventListener('abort', abort));
  if (signal?.aborted) abort();
  const broken = (cause: unknown): unknown =>
    signal?.aborted ? signal.reason : connectionError(url, cause ?? new Error('the connection is closed'), true);
  const chunks: AsyncIterator<Uint8Array, undefined> = socket.iterator({ destroyOnReturn: false });
  const readable = new ReadableStream<Uint8Array>(
    {
      pull: async (controller) => {
        const { done, value } = await chunks.next().catch((cause: unknown) => {
          if (!over || signal?.aborted) throw broken(cause);
          return { done: true, value: undefined } as const;
        });
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: close,
    },
    { highWaterMark: 0 },
  );
  const writable = new WritableStream<Uint8Array>({
    write: async (bytes) => {
      if (!socket.writable) throw broken(socket.errored);
      if (!socket.write(bytes)) await drained(socket);
      if (socket.destroyed) throw broken(socket.errored);
    },
    close: () => void socket.end(),
    abort: close,
  });
  return { readable, writable, close };
}

/** WebSockets as streams of messages, of whatever kind the platform has. */
import { webSocketClose } from '@fuse/contract';
import { FuseApiError, FuseConnectionError, FuseError } from './errors.ts';
import { sleep } from './sleep.ts';

export interface MessageSocket {
  /** Its end is a clean close; anything else is an error. */
  readonly readable: ReadableStream<Uint8Array | string>;
  readonly writable: WritableStream<Uint8Array | string>;
  /** Done with it, both ways. */
  close(): void;
}

/** Bytes both ways, without frames. Each direction ends by itself; closing `writable` is a half-close. */
export interface ByteConnection {
  readonly readable: ReadableStream<Uint8Array>;
  readonly writable: WritableStream<Uint8Array>;
  /** Both ways, at once. */
  close(): void;
}

export interface WebSockets {
  /** Whether it sends headers. Browsers do not: a ticket is asked for first. */
  readonly carriesHeaders: boolean;
  /** Rejects with FuseApiError where the server's refusal can be seen. */
  open(url: URL, options: { headers: Record<string, string>; signal?: AbortSignal }): Promise<MessageSocket>;
  /** An `Upgrade` to a protocol that is not WebSocket, of an http or https URL. Browsers have none. The signal ends the connection as well. */
  upgrade?(
    url: URL,
    protocol: string,
    options: { headers: Record<string, string>; signal?: AbortSignal | undefined },
  ): Promise<ByteConnection>;
}

/** Without a way to hold the sender back, what nobody reads is bounded by ending the connection. */
const MAX_UNREAD_BYTES = 64 * 1_048_576;
const ROOM_BYTES = 1_048_576;
const ROOM_POLL_MS = 5;

/** What a close says: undefined when all was said before. */
export function closeError(code: number, reason: string): Error | undefined {
  if (code === webSocketClose.done || code === 1005) return undefined;
  const why = reason === '' ? `WebSocket closed with ${code}` : reason;
  if (code >= 4400 && code < 4600) {
    const [, errorCode = '', message = why] = /^([a-z_]+): ([\s\S]*)$/.exec(reason) ?? [];
    return new FuseApiError({ status: code - 4000, code: errorCode, reason: message });
  }
  if (code === webSocketClose.lost) return new FuseApiError({ status: 502, code: 'vm_lost', reason: why });
  // 1006: cut. Both are over soon.
  if (code === webSocketClose.restart || code === 1006) return new FuseConnectionError(why, { sent: true });
  return new FuseError(why);
}

/** The part of a browser's WebSocket that is needed. */
interface PlainSocket {
  binaryType: string;
  readonly readyState: number;
  readonly bufferedAmount: number;
  send(data: Uint8Array | string): void;
  close(code?: number): void;
  addEventListener(type: 'open' | 'error', listener: () => void): void;
  addEventListener(type: 'message', listener: (event: { data: unknown }) => void): void;
  addEventListener(type: 'close', listener: (event: { code: number; reason: string }) => void): void;
}

const OPEN = 1;

/** `globalThis.WebSocket`: of browsers, Bun, Deno, and Node from 22 on. */
export const globalWebSockets: WebSockets = {
  carriesHeaders: false,
  open: (url, { signal }) => {
    const { WebSocket } = globalThis as { WebSocket?: new (url: string) => PlainSocket };
    if (WebSocket === undefined)
      return Promise.reject(
        new FuseError(
          'there is no WebSocket here; on Node 20 give FuseClient `webSockets: nodeWebSockets()` of @fuse/sdk/node',
        ),
      );
    signal?.throwIfAborted();
    const socket = new WebSocket(url.href);
    socket.binaryType = 'arraybuffer';
    return opened(socket, url, signal);
  },
};

function opened(socket: PlainSocket, url: URL, signal: AbortSignal | undefined): Promise<MessageSocket> {
  let controller!: ReadableStreamDefaultController<Uint8Array | string>; // `start` is called at once
  let over = false;
  const end = (error: Error | undefined) => {
    if (over) return;
    over = true;
    if (error === undefined) controller.close();
    else controller.error(error);
    socket.close();
  };
  const readable = new ReadableStream<Uint8Array | string>(
    {
      start: (its) => {
        controller = its;
      },
      cancel: () => {
        over = true;
        socket.close();
      },
    },
    { highWaterMark: MAX_UNREAD_BYTES, size: (message) => message?.length ?? 0 },
  );
  const writable = new WritableStream<Uint8Array | string>({
    write: async (message) => {
      if (socket.readyState !== OPEN) throw new FuseConnectionError('the WebSocket is closed', { sent: true });
      socket.send(message);
      while (socket.bufferedAmount > ROOM_BYTES && socket.readyState === OPEN) await sleep(ROOM_POLL_MS);
    },
  });
  return new Promise((resolve, reject) => {
    const abort = () => {
      reject(signal?.reason);
      end(undefined);
    };
    signal?.addEventListener('abort', abort, { once: true });
    socket.addEventListener('open', () => {
      signal?.removeEventListener('abort', abort);
      resolve({ readable, writable, close: () => end(undefined) });
    });
    socket.addEventListener('message', ({ data }) => {
      if (over) return;
      controller.enqueue(typeof data === 'string' ? data : new Uint8Array(data as ArrayBuffer)); // as `binaryType` says
      if ((controller.desiredSize ?? 0) < 0) end(new FuseError('more came than is read: the connection was ended'));
    });
    socket.addEventListener('close', ({ code, reason }) => {
      signal?.removeEventListener('abort', abort);
      // Before it was open no browser says why.
      reject(new FuseConnectionError(`${url.pathname}: no WebSocket could be opened`, { sent: true }));
      end(closeError(code, reason));
    });
  });
}

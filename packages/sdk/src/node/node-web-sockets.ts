import type { WebSocket } from 'ws';
import { FuseConnectionError } from '../errors.ts';
import { closeError, type MessageSocket, type WebSockets } from '../web-sockets.ts';
import { refusal } from './refusal.ts';
import { upgrade } from './upgrade.ts';

/** The server's largest message. */
const MAX_MESSAGE_BYTES = 1_048_584;
const ROOM_BYTES = 1_048_576;
/** The server pings every 15 s. */
const STALL_MS = 45_000;

/** WebSockets that carry the token in a header, with backpressure both ways; and connections of other protocols. */
export function nodeWebSockets(): WebSockets {
  return {
    carriesHeaders: true,
    upgrade,
    open: async (url, { headers, signal }) => {
      const { WebSocket } = await import('ws');
      return new Promise((resolve, reject) => {
        signal?.throwIfAborted();
        const ws = new WebSocket(url, { headers, perMessageDeflate: false, maxPayload: MAX_MESSAGE_BYTES });
        const abort = () => {
          reject(signal?.reason);
          ws.terminate();
        };
        signal?.addEventListener('abort', abort, { once: true });
        const settled = () => signal?.removeEventListener('abort', abort);
        ws.on('error', (cause) => {
          settled();
          reject(new FuseConnectionError(`${url.pathname}: ${cause.message}`, { cause, sent: ws.readyState !== 0 }));
        });
        ws.once('unexpected-response', (request, response) => {
          settled();
          refusal(response).then(reject, reject);
          request.once('close', () => ws.terminate());
        });
        const socket = messagesOf(ws);
        ws.once('open', () => {
          settled();
          resolve(socket);
        });
      });
    },
  };
}

function messagesOf(ws: WebSocket): MessageSocket {
  let over = false;
  let silent: NodeJS.Timeout;
  const heard = () => {
    clearTimeout(silent);
    silent = setTimeout(() => ws.terminate(), STALL_MS);
    silent.unref();
  };
  const readable = new ReadableStream<Uint8Array | string>(
    {
      start: (controller) => {
        ws.on('message', (data: Buffer, isBinary) => {
          heard();
          if (over) return;
          controller.enqueue(isBinary ? data : data.toString());
          if ((controller.desiredSize ?? 0) <= 0) {
            ws.pause();
            clearTimeout(silent); // it is we who do not listen
          }
        });
        ws.once('close', (code, reason) => {
          clearTimeout(silent);
          if (over) return;
          over = true;
          const error = closeError(code, reason.toString());
          if (error === undefined) controller.close();
          else controller.error(error);
        });
      },
      pull: () => {
        if (!ws.isPaused) return;
        ws.resume();
        heard();
      },
      cancel: () => {
        over = true;
        ws.close();
      },
    },
    { highWaterMark: ROOM_BYTES, size: (message) => message?.length ?? 0 },
  );
  ws.on('ping', heard);
  ws.once('open', heard);
  const writable = new WritableStream<Uint8Array | string>({
    write: (message) =>
      new Promise((resolve, reject) => {
        ws.send(message, { binary: typeof message !== 'string' }, (cause) => {
          if (cause) reject(new FuseConnectionError('the WebSocket is closed', { cause, sent: true }));
          else resolve();
        });
        if (ws.readyState === ws.OPEN && ws.bufferedAmount < ROOM_BYTES) resolve();
      }),
  });
  return {
    readable,
    writable,
    close: () => {
      ws.resume(); // its closing answer has to be read
      ws.close();
    },
  };
}

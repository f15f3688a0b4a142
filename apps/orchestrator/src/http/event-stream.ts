/**
 * Server-sent events as published clients read them (api.md 1.7): `id:` and one `data:` line a frame, comments to keep the
 * connection alive. A client that does not read is cut off after STALLED_MS; `send` waits for it, so nothing piles up.
 */

import { once } from 'node:events';
import './closing.ts';
import type { FastifyReply } from 'fastify';

const KEEPALIVE_MS = 15_000;
const STALLED_MS = 30_000;

export interface EventStream {
  /** Aborted when the client went away or the server stops. */
  readonly signal: AbortSignal;
  /** Resolves when there is room for the next one; rejects once `signal` is aborted. An id alone is no event: it says where to go on. */
  send(frame: { id?: string; event?: string; data?: unknown }): Promise<void>;
  close(): void;
}

/** From here on the answer is this stream's: look things up and refuse before. */
export function openEventStream(reply: FastifyReply, keepaliveMs = KEEPALIVE_MS): EventStream {
  reply.hijack();
  const response = reply.raw;
  const gone = new AbortController();
  for (const [name, value] of Object.entries(reply.getHeaders()))
    if (value !== undefined) response.setHeader(name, value);
  response.writeHead(200, {
    'Content-Type': 'text/event-stream',
    'Cache-Control': 'no-cache',
    Connection: 'keep-alive',
    'X-Accel-Buffering': 'no',
  });
  response.flushHeaders();
  response.socket?.setNoDelay(true);
  const keepalive = setInterval(() => {
    if (!response.writableNeedDrain) response.write(': keepalive\n\n');
  }, keepaliveMs);
  response.on('error', () => {}); // 'close' follows
  response.once('close', () => {
    clearInterval(keepalive);
    gone.abort(new Error('the client closed the event stream'));
  });

  const closing = reply.server.closing;
  const onClosing = () => {
    gone.abort(closing.reason);
    response.end();
  };
  closing.addEventListener('abort', onClosing, { once: true });
  response.once('close', () => closing.removeEventListener('abort', onClosing));

  return {
    signal: gone.signal,
    async send({ id, event, data }) {
      gone.signal.throwIfAborted();
      const head = `${id === undefined ? '' : `id: ${id}\n`}${event === undefined ? '' : `event: ${event}\n`}`;
      const body = data === undefined ? '' : `data: ${JSON.stringify(data)}\n`;
      if (response.write(`${head}${body}\n`)) return;
      const stalled = AbortSignal.timeout(STALLED_MS);
      try {
        await once(response, 'drain', { signal: AbortSignal.any([stalled, gone.signal]) });
      } catch (error) {
        response.destroy();
        throw error;
      }
    },
    close() {
      clearInterval(keepalive);
      response.end();
    },
  };
}

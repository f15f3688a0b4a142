/** What ends a wait from outside: the client went away, or the server stops. */

import { setMaxListeners } from 'node:events';
import type { FastifyReply } from 'fastify';
import type { App } from './http-server.ts';

declare module 'fastify' {
  interface FastifyInstance {
    /** Aborted when the server begins to close: streams that never end by themselves end now. */
    closing: AbortSignal;
  }
}

export function installClosing(app: App): void {
  const closing = new AbortController();
  setMaxListeners(0, closing.signal); // one for each open stream
  app.decorate('closing', closing.signal);
  app.addHook('preClose', async () => closing.abort(new Error('the server stops')));
}

/** Nobody is there to read an answer. */
export class ClientGone extends Error {
  override readonly name = 'ClientGone';
}

/** Aborted with ClientGone when the connection closes before the answer was written. */
export function clientSignal(reply: FastifyReply): AbortSignal {
  const gone = new AbortController();
  const onClose = () => {
    if (!reply.raw.writableFinished) gone.abort(new ClientGone('the client closed the connection'));
  };
  if (reply.raw.destroyed) onClose();
  else reply.raw.once('close', onClose);
  return gone.signal;
}

/**
 * As `clientSignal`, and aborted when the server begins to close. (Not AbortSignal.any: what is made of a signal that lives as long as the process
 * is kept for as long.)
 */
export function streamSignal(reply: FastifyReply): AbortSignal {
  const end = new AbortController();
  const { closing } = reply.server;
  const onClosing = () => end.abort(closing.reason);
  const onClose = () => {
    closing.removeEventListener('abort', onClosing);
    if (!reply.raw.writableFinished) end.abort(new ClientGone('the client closed the connection'));
  };
  if (closing.aborted) onClosing();
  else closing.addEventListener('abort', onClosing, { once: true });
  if (reply.raw.destroyed) onClose();
  else reply.raw.once('close', onClose);
  return end.signal;
}

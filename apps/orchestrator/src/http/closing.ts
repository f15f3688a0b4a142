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

import { setMaxListeners } from 'node:events';
import type { FastifyReply } from 'fastify';

/** Nobody is there to be answered. */
export class CallerGone extends Error {
  override readonly name = 'CallerGone';

  constructor() {
    super('the caller has gone');
  }
}

/** Aborts when the caller is gone before it has its answer, or the host agent stops. */
export function callerSignal(reply: FastifyReply, stopping: AbortSignal): AbortSignal {
  const caller = new AbortController();
  setMaxListeners(0, caller.signal);
  const onStopping = () => caller.abort(stopping.reason);
  if (stopping.aborted) onStopping();
  stopping.addEventListener('abort', onStopping, { once: true });
  reply.raw.once('close', () => {
    stopping.removeEventListener('abort', onStopping);
    if (!reply.raw.writableFinished) caller.abort(new CallerGone());
  });
  return caller.signal;
}

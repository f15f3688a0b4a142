/**
 * A request's body of any size, as it comes, for whoever takes it in: it may be given up without the connection being cut, so that the client still gets the
 * answer. It fails with 408 when nothing comes for `stalledMs` (0: it may take its time), and with 503 soon after the server begins to stop.
 */
import { PassThrough, type Readable } from 'node:stream';
import { AppError } from '@fuse/contract';
import type { FastifyRequest } from 'fastify';

/** What is nearly there may still come. */
const STOPPING_GRACE_MS = 1_000;

export interface IncomingBody extends Readable {
  /** Why it was given up here: what its reader makes of that says less. */
  endedBy: AppError | undefined;
}

export function incomingBody({ raw, server }: FastifyRequest, stalledMs: number): IncomingBody {
  const body = Object.assign(new PassThrough(), { endedBy: undefined as AppError | undefined });
  const end = (reason: AppError) => {
    body.endedBy = reason;
    body.destroy(reason);
  };
  const { closing } = server;
  let stopping: NodeJS.Timeout | undefined;
  const onStalled = () => end(bodyTimedOut(`nothing for ${stalledMs / 1_000} s`));
  const onClosing = () => {
    stopping = setTimeout(() => end(serverStops()), STOPPING_GRACE_MS);
  };
  const onClose = () => {
    if (!raw.complete) body.destroy(new AppError('invalid_argument', 'the upload was cut'));
  };
  raw.setTimeout(stalledMs, onStalled);
  raw.once('close', onClose);
  if (closing.aborted) onClosing();
  else closing.addEventListener('abort', onClosing, { once: true });
  body.once('close', () => {
    clearTimeout(stopping);
    closing.removeEventListener('abort', onClosing);
    raw.setTimeout(0);
    raw.off('timeout', onStalled);
    raw.off('close', onClose);
    raw.unpipe(body);
  });
  body.on('error', () => {}); // told to whoever reads it; by then that may be nobody
  raw.pipe(body);
  return body;
}

export const bodyTimedOut = (why: string): AppError =>
  new AppError('invalid_argument', `the request body did not come: ${why}`, {
    status: 408,
    hint: 'Send the request again.',
  });

const serverStops = (): AppError =>
  new AppError('unavailable', 'the server stops: what was on its way was given up', {
    retryAfterSeconds: 1,
    hint: 'Send it again.',
  });

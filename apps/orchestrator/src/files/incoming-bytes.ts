/**
 * A request's body for the object store: it may give up on it without the connection being cut, so that the client still gets the
 * refusal. A client that sends nothing for STALLED_MS is given up.
 */
import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';

const STALLED_MS = 60_000;

export function incomingBytes(request: IncomingMessage): Readable {
  return Readable.from(chunksOf(request), { objectMode: false });
}

async function* chunksOf(request: IncomingMessage): AsyncGenerator<Uint8Array> {
  const onStalled = () => request.destroy(new Error(`nothing came for ${STALLED_MS} ms`));
  request.setTimeout(STALLED_MS, onStalled);
  try {
    yield* request.iterator({ destroyOnReturn: false });
    if (!request.complete) throw new Error('the upload was cut');
  } finally {
    request.setTimeout(0);
    request.off('timeout', onStalled);
  }
}

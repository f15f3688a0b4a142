/** Reading an HTTP/2 stream to its end, and telling a whole one from a cut one. */
import { type ClientHttp2Stream, constants } from 'node:http2';

export class CutError extends Error {
  override readonly name = 'CutError';
  constructor(what: string) {
    super(`the guest's answer to ${what} was cut`);
  }
}

/**
 * Gives a stream up so that the guest sees a reset. Closing it with a code does not do that: Node then ends the request properly first, and the
 * guest takes half a file for a whole one. Harmless on a stream that is over.
 */
export function abandon(stream: ClientHttp2Stream): void {
  if (!stream.destroyed) stream.destroy(new Error('the host gave the request up'));
}

/**
 * Everything that came, then the end, or CutError when the stream was reset or its session lost. Node's own iterator cannot be used: a guest that
 * has answered in full and takes no more of the request resets the stream with NO_ERROR, as HTTP/2 tells it to, and the iterator then fails
 * and drops what is still unread; a lost session, on the other hand, it takes for an end.
 */
export async function* chunksOf(stream: ClientHttp2Stream, what: string): AsyncGenerator<Buffer> {
  while (!stream.readableEnded) {
    const chunk: Buffer | null = stream.read();
    if (chunk !== null) yield chunk;
    else if (stream.errored !== null) throw stream.errored;
    else if (stream.destroyed) break;
    else if (!stream.readableEnded) await change(stream);
  }
  if (!stream.readableEnded || (stream.rstCode ?? 0) !== constants.NGHTTP2_NO_ERROR) throw new CutError(what);
}

const changes = ['readable', 'end', 'close', 'error'] as const;

function change(stream: ClientHttp2Stream): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      for (const name of changes) stream.off(name, done);
      resolve();
    };
    for (const name of changes) stream.on(name, done);
  });
}

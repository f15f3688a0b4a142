/**
 * The same bytes, large pieces cut so that each ends at a multiple of 8 bytes of the whole. What lies across words an emulated guest copies byte by byte,
 * several times over, and takes half as long again for everything that is sent to it.
 */
import type { Readable } from 'node:stream';

const WORD_BYTES = 8;
/** What is smaller goes on as it is, at once: a key may be all that comes. */
const LARGE_BYTES = 16_384;
/** So long a few bytes behind a large piece wait for what follows. */
const PATIENCE_MS = 2;

export async function* wholeWords(body: Readable): AsyncGenerator<Uint8Array> {
  const pieces: AsyncIterator<Uint8Array> = body[Symbol.asyncIterator]();
  let sent = 0;
  let rest: Uint8Array = new Uint8Array();
  try {
    for (;;) {
      const coming = pieces.next();
      if (rest.length > 0 && !(await comesSoon(coming))) {
        yield rest;
        sent += rest.length;
        rest = new Uint8Array();
      }
      const { done, value } = await coming;
      if (done === true) break;
      const bytes = rest.length === 0 ? value : Buffer.concat([rest, value]);
      const odd = bytes.length < LARGE_BYTES ? 0 : (sent + bytes.length) % WORD_BYTES;
      rest = Uint8Array.prototype.slice.call(bytes, bytes.length - odd);
      yield bytes.subarray(0, bytes.length - odd);
      sent += bytes.length - odd;
    }
    if (rest.length > 0) yield rest;
  } finally {
    await pieces.return?.();
  }
}

function comesSoon(coming: Promise<unknown>): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, PATIENCE_MS, false);
    const come = () => {
      clearTimeout(timer);
      resolve(true);
    };
    coming.then(come, come);
  });
}

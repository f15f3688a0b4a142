/** A WebSocket of the page and the stream of a display, joined: bytes as they are, at the slower one's pace. */
import type { ByteConnection } from '@fuse/sdk';
import { createWebSocketStream, type WebSocket } from 'ws';

const STOPPED = 1001;
const DISPLAY_FAILED = 4000;
/** Of the protocol. */
const MAX_REASON_BYTES = 123;

/**
 * Resolves once the page has left, the display has ended, or the signal is aborted: then both are closed. Rejects when there is no display (any more); the page has
 * been told why, in `reasonOf`'s words.
 */
export async function bridge(
  page: WebSocket,
  open: (signal: AbortSignal) => Promise<ByteConnection>,
  { signal, reasonOf }: { signal: AbortSignal; reasonOf: (error: unknown) => string },
): Promise<void> {
  const gone = new AbortController();
  page.once('close', () => gone.abort());
  page.on('error', () => {}); // it is closed then
  const bytes = createWebSocketStream(page);
  bytes.on('error', () => {}); // as above
  const stop = () => page.close(STOPPED, 'fuse desktop was stopped');
  signal.addEventListener('abort', stop, { once: true });
  if (signal.aborted) stop();
  let display: ByteConnection | undefined;
  try {
    display = await open(AbortSignal.any([signal, gone.signal]));
    const ways = [
      toDisplay(bytes.iterator({ destroyOnReturn: false }), display.writable),
      toPage(display.readable, page),
    ];
    for (const way of ways) way.catch(() => {}); // the first one's end is told
    await Promise.race(ways);
    page.close();
    display.close();
    await Promise.allSettled(ways);
  } catch (error) {
    if (signal.aborted || gone.signal.aborted) return;
    page.close(DISPLAY_FAILED, shortened(reasonOf(error)));
    throw error;
  } finally {
    signal.removeEventListener('abort', stop);
    display?.close();
  }
}

async function toDisplay(page: AsyncIterable<Uint8Array>, writable: WritableStream<Uint8Array>): Promise<void> {
  const writer = writable.getWriter();
  writer.closed.catch(() => {}); // told by what is written
  for await (const chunk of page) await writer.write(chunk);
}

async function toPage(readable: ReadableStream<Uint8Array>, page: WebSocket): Promise<void> {
  for await (const chunk of readable) {
    if (page.readyState !== page.OPEN) return;
    // A page that is leaving takes nothing more.
    await new Promise<void>((resolve) => page.send(chunk, () => resolve()));
  }
}

function shortened(text: string): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= MAX_REASON_BYTES) return text;
  return `${bytes
    .subarray(0, MAX_REASON_BYTES - 6)
    .toString()
    .replace(/\uFFFD+$/, '')}…`;
}

/**
 * A stream that outlives its connections. `connection` goes on where the last one was cut, and returns true when it came to the stream's own end. Only
 * what says "not now" is tried again, until nothing has come of it for `patienceMs`: then it fails with `onCut`'s error.
 */
import { FuseError } from './errors.ts';
import { backoffMs, isPassing, type Random } from './retry.ts';
import { sleep } from './sleep.ts';

/** Longer than a control plane takes to restart. */
export const PATIENCE_MS = 60_000;
/** A connection that held this long was a good one, even if nothing happened on it. */
export const GOOD_CONNECTION_MS = 5_000;

export interface PersistOptions {
  signal?: AbortSignal | undefined;
  random: Random;
  /** How long to go on trying without getting any further. */
  patienceMs?: number | undefined;
  onCut: (cause: unknown) => Error;
}

export async function* persist<T>(
  connection: (signal: AbortSignal) => AsyncGenerator<T, boolean>,
  options: PersistOptions,
): AsyncGenerator<T, void> {
  const { signal, patienceMs = PATIENCE_MS } = options;
  let fruitless = 0;
  let lastProgressAt = performance.now();
  for (;;) {
    signal?.throwIfAborted();
    const connected = new AbortController();
    const abort = () => connected.abort(signal?.reason);
    signal?.addEventListener('abort', abort, { once: true });
    const openedAt = performance.now();
    let cause: unknown;
    let progressed = false;
    try {
      const items = connection(connected.signal);
      for (;;) {
        const { done, value } = await items.next();
        if (done) {
          if (value) return;
          break;
        }
        progressed = true;
        let taken = false;
        try {
          yield value;
          taken = true;
        } finally {
          if (!taken) await items.return(false);
        }
      }
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      if (error instanceof FuseError && !isPassing(error)) throw error;
      cause = error;
    } finally {
      signal?.removeEventListener('abort', abort);
      connected.abort();
    }
    const now = performance.now();
    const good = progressed || now - openedAt >= GOOD_CONNECTION_MS;
    fruitless = good ? 0 : fruitless + 1;
    if (good) lastProgressAt = now;
    if (now - lastProgressAt >= patienceMs) throw options.onCut(cause);
    await sleep(backoffMs(fruitless, options.random), signal);
  }
}

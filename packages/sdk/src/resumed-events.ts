/**
 * An event stream that outlives its connections: after a cut it asks for what comes after the last event that was handed over,
 * so its reader sees every event once. It ends with the last event, or fails with CutStreamError.
 */
import { CutStreamError, FuseError } from './errors.ts';
import { backoffMs, isPassing, type Random } from './retry.ts';
import { serverSentEvents } from './server-sent-events.ts';
import { sleep, within } from './sleep.ts';

/** The server sends at least a comment every 15 s. */
export const STALL_MS = 45_000;
/** Longer than a control plane takes to restart. */
export const PATIENCE_MS = 60_000;
/** A connection that held this long was a good one, even if nothing happened on it. */
const GOOD_CONNECTION_MS = 5_000;

export interface Subject<T> {
  id: string;
  connect: (lastEventId: string | undefined, signal: AbortSignal) => Promise<Response>;
  decode: (data: string) => T;
  isLast: (event: T) => boolean;
}

export interface ResumeOptions {
  lastEventId?: string | undefined;
  signal?: AbortSignal | undefined;
  random: Random;
  stallMs?: number;
  /** How long to go on trying without getting any further. */
  patienceMs?: number | undefined;
}

export type Identified<T> = T & { readonly id: string };

export async function* resumedEvents<T extends object>(
  subject: Subject<T>,
  options: ResumeOptions,
): AsyncGenerator<Identified<T>, void> {
  const { signal, stallMs = STALL_MS, patienceMs = PATIENCE_MS } = options;
  let lastEventId = options.lastEventId;
  let fruitless = 0;
  let lastProgressAt = performance.now();
  for (;;) {
    signal?.throwIfAborted();
    const connection = new AbortController();
    const abort = () => connection.abort(signal?.reason);
    signal?.addEventListener('abort', abort, { once: true });
    const openedAt = performance.now();
    let cause: unknown;
    let progressed = false;
    try {
      const response = await within(stallMs, subject.connect(lastEventId, connection.signal));
      if (response.body === null) throw new FuseError('an event stream without a body');
      for await (const frame of serverSentEvents(response.body, stallMs)) {
        if (frame.id === undefined)
          throw new FuseError('an event without an id: the stream could not be taken up again');
        const event = subject.decode(frame.data);
        lastEventId = frame.id;
        progressed = true;
        yield { ...event, id: frame.id };
        if (subject.isLast(event)) return;
      }
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      if (error instanceof FuseError && !isPassing(error)) throw error;
      cause = error;
    } finally {
      signal?.removeEventListener('abort', abort);
      connection.abort();
    }
    const now = performance.now();
    const good = progressed || now - openedAt >= GOOD_CONNECTION_MS;
    fruitless = good ? 0 : fruitless + 1;
    if (good) lastProgressAt = now;
    if (now - lastProgressAt >= patienceMs) throw new CutStreamError(subject.id, lastEventId, cause);
    await sleep(backoffMs(fruitless, options.random), signal);
  }
}

/**
 * An event stream that outlives its connections: after a cut it asks for what comes after the last event that was handed over,
 * so its reader sees every event once. It ends with the last event, or fails with CutStreamError.
 */
import { CutStreamError, FuseError } from './errors.ts';
import { type PersistOptions, persist } from './persist.ts';
import { serverSentEvents } from './server-sent-events.ts';
import { STALL_MS, within } from './sleep.ts';

export interface Subject<T> {
  id: string;
  connect: (lastEventId: string | undefined, signal: AbortSignal) => Promise<Response>;
  decode: (data: string) => T;
  isLast: (event: T) => boolean;
}

export interface ResumeOptions extends Omit<PersistOptions, 'onCut'> {
  lastEventId?: string | undefined;
  stallMs?: number;
}

export type Identified<T> = T & { readonly id: string };

export function resumedEvents<T extends object>(
  subject: Subject<T>,
  options: ResumeOptions,
): AsyncGenerator<Identified<T>, void> {
  const { stallMs = STALL_MS } = options;
  let lastEventId = options.lastEventId;
  async function* connection(signal: AbortSignal): AsyncGenerator<Identified<T>, boolean> {
    const response = await within(stallMs, subject.connect(lastEventId, signal));
    if (response.body === null) throw new FuseError('an event stream without a body');
    for await (const frame of serverSentEvents(response.body, stallMs)) {
      if (frame.id === undefined) throw new FuseError('an event without an id: the stream could not be taken up again');
      if (frame.data === undefined) {
        lastEventId = frame.id;
        continue;
      }
      const event = subject.decode(frame.data);
      lastEventId = frame.id;
      yield { ...event, id: frame.id };
      if (subject.isLast(event)) return true;
    }
    return false;
  }
  return persist(connection, { ...options, onCut: (cause) => new CutStreamError(subject.id, lastEventId, cause) });
}

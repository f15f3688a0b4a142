/** A run's events as the SDK hands them over: output as bytes, and as text that is right across chunk borders. */
import { type RunErrorCode, RunEvent, type RunState } from '@fuse/contract';
import { FuseError } from './errors.ts';

type WithoutId =
  | { event: 'state'; runId: string; state: RunState; error?: { code: RunErrorCode; message: string }; at: string }
  | { event: 'stdout'; runId: string; data: Uint8Array }
  | { event: 'stderr'; runId: string; data: Uint8Array }
  /** The command wrote more than is kept; what follows on either stream is missing. */
  | { event: 'truncated'; runId: string }
  /** The server does not know the id after which the stream was to go on: everything comes again, from the beginning. */
  | { event: 'reset'; runId: string };

/** The id is opaque; `events(runId, {lastEventId})` goes on after it. */
export type RunStreamEvent = WithoutId & { readonly id: string };

export function decodeRunEvent(data: string): WithoutId {
  let event: RunEvent;
  try {
    event = RunEvent.parse(JSON.parse(data));
  } catch (cause) {
    throw new FuseError('decode event: not an event of a run', { cause });
  }
  const runId = event.run_id;
  switch (event.event) {
    case 'state': {
      const { state, error, at } = event;
      return { event: 'state', runId, state, at, ...(error === undefined ? {} : { error }) };
    }
    case 'stdout':
    case 'stderr':
      return { event: event.event, runId, data: bytesFromBase64(event.data_base64) };
    case 'truncated':
    case 'reset':
      return { event: event.event, runId };
  }
}

export function bytesFromBase64(text: string): Uint8Array {
  let binary: string;
  try {
    binary = atob(text);
  } catch (cause) {
    throw new FuseError('not base64', { cause });
  }
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

export type RunTextEvent =
  | Exclude<WithoutId, { event: 'stdout' | 'stderr' }>
  | { event: 'stdout'; runId: string; text: string }
  | { event: 'stderr'; runId: string; text: string };

/**
 * stdout and stderr decoded as UTF-8, each stream by itself: a character cut by a chunk's border comes out whole with the chunk that
 * completes it. Invalid bytes become U+FFFD; use the events themselves where bytes matter.
 */
export async function* asText(events: AsyncIterable<RunStreamEvent>): AsyncGenerator<RunTextEvent, void> {
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  let runId = '';
  for await (const event of events) {
    runId = event.runId;
    if (event.event === 'stdout' || event.event === 'stderr') {
      const text = decoders[event.event].decode(event.data, { stream: true });
      if (text !== '') yield { event: event.event, runId, text };
    } else {
      if (event.event === 'state') yield* rest(decoders, runId);
      yield event;
    }
  }
  yield* rest(decoders, runId);
}

/** Bytes of an unfinished character at the end of the output. */
function* rest(
  decoders: Record<'stdout' | 'stderr', InstanceType<typeof TextDecoder>>,
  runId: string,
): Generator<RunTextEvent> {
  for (const event of ['stdout', 'stderr'] as const) {
    const text = decoders[event].decode();
    if (text !== '') yield { event, runId, text };
  }
}

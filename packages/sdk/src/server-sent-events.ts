/** The frames of one `text/event-stream` body. */
import { createParser } from 'eventsource-parser';
import { FuseError } from './errors.ts';
import { within } from './sleep.ts';

/** Far over the largest event that a server of ours sends; a body without line ends must not fill memory. */
const MAX_EVENT_CHARS = 8 * 1024 * 1024;

export interface ServerSentEvent {
  id: string | undefined;
  data: string;
}

/**
 * Whole frames only: one that the end of the body cuts is dropped, to be sent again after its predecessor's id.
 * Fails when nothing, not even a keepalive comment, comes for `stallMs`.
 */
export async function* serverSentEvents(
  body: ReadableStream<Uint8Array>,
  stallMs: number,
): AsyncGenerator<ServerSentEvent> {
  let ready: ServerSentEvent[] = [];
  let broken: Error | undefined;
  const parser = createParser({
    maxBufferSize: MAX_EVENT_CHARS,
    onEvent: ({ id, data }) => ready.push({ id, data }),
    onError: (error) => {
      if (error.type === 'max-buffer-size-exceeded') broken = new FuseError('an event is too long', { cause: error });
    },
  });
  const decoder = new TextDecoder();
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await within(stallMs, reader.read());
      if (done) return;
      parser.feed(decoder.decode(value, { stream: true }));
      const events = ready;
      ready = [];
      yield* events;
      if (broken !== undefined) throw broken;
    }
  } finally {
    // What is still to come is nobody's; a reader that fails to cancel was broken already.
    await reader.cancel().catch(() => {});
  }
}

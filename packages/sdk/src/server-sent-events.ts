/** The frames of one `text/event-stream` body. */
import { FuseError } from './errors.ts';
import { within } from './sleep.ts';

/** Far over the largest event that a server of ours sends; a body without line ends must not fill memory. */
const MAX_EVENT_CHARS = 8 * 1024 * 1024;

/** Without `data` it is no event: its id says where to go on. */
export interface ServerSentEvent {
  id?: string | undefined;
  data?: string | undefined;
}

/**
 * Whole frames only: one that the end of the body cuts is dropped, to be sent again after its predecessor's id.
 * Fails when nothing, not even a keepalive comment, comes for `stallMs`.
 */
export async function* serverSentEvents(
  body: ReadableStream<Uint8Array>,
  stallMs: number,
): AsyncGenerator<ServerSentEvent> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let line = '';
  let frame: ServerSentEvent = {};
  // At the end of a chunk it may be half of CRLF.
  let heldReturn = '';
  try {
    for (;;) {
      const { done, value } = await within(stallMs, reader.read());
      if (done) return;
      const text = heldReturn + decoder.decode(value, { stream: true });
      heldReturn = text.endsWith('\r') ? '\r' : '';
      const [first = '', ...rest] = (heldReturn === '' ? text : text.slice(0, -1)).split(/\r\n|\n|\r/);
      line += first;
      for (const next of rest) {
        if (line !== '') frame = withLine(frame, line);
        else {
          if (frame.id !== undefined || frame.data !== undefined) yield frame;
          frame = {};
        }
        line = next;
      }
      if (line.length + (frame.data?.length ?? 0) > MAX_EVENT_CHARS) throw new FuseError('an event is too long');
    }
  } finally {
    // What is still to come is nobody's; a reader that fails to cancel was broken already.
    await reader.cancel().catch(() => {});
  }
}

/** Other fields, and comments, say nothing to us. */
function withLine(frame: ServerSentEvent, line: string): ServerSentEvent {
  const [, field, value = ''] = /^([^:]*)(?:: ?([\s\S]*))?$/.exec(line) ?? [];
  if (field === 'data') return { ...frame, data: frame.data === undefined ? value : `${frame.data}\n${value}` };
  return field === 'id' && !value.includes('\0') ? { ...frame, id: value } : frame;
}

/** Values of a body of `application/x-ndjson`. */
import { FuseError } from './errors.ts';
import { within } from './sleep.ts';

/** Far over the longest line that a server of ours sends. */
const MAX_LINE_CHARS = 8 * 1_048_576;

/** Whole lines only: one that the end of the body cuts is dropped. Fails when nothing comes for `stallMs`. */
export async function* jsonLines(body: ReadableStream<Uint8Array>, stallMs: number): AsyncGenerator<unknown> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let begun = '';
  try {
    for (;;) {
      const { done, value } = await within(stallMs, reader.read());
      if (done) return;
      const [first = '', ...rest] = decoder.decode(value, { stream: true }).split('\n');
      begun += first;
      for (const next of rest) {
        if (begun.trim() !== '') yield parse(begun);
        begun = next;
      }
      if (begun.length > MAX_LINE_CHARS) throw new FuseError('a line is too long');
    }
  } finally {
    // What is still to come is nobody's; a reader that fails to cancel was broken already.
    await reader.cancel().catch(() => {});
  }
}

function parse(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch (cause) {
    throw new FuseError('a line that is not JSON', { cause });
  }
}

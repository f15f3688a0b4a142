/**
 * A log as lines of JSON. As UTF-8 no character is ever split: one that stands at the end of a frame is finished with bytes of the next one of its stream, and what comes
 * meanwhile waits for it. Whoever goes on at a line's offset has all that came before it: bytes at the start of a stream that only end a character were told with that.
 */
import type { Encoding, ExecLogLine } from '@fuse/contract';
import { characterLength, decodeUtf8, halfCharacterAtEnd } from './exec-text.ts';
import { toExecExit } from './exec-view.ts';
import type { LogEvent } from './follow-log.ts';

type Stream = 'stdout' | 'stderr';
type Data = Extract<LogEvent, { kind: 'data' }>;

interface Waiting {
  stream: Stream;
  pieces: Uint8Array[];
  offset: number;
}

/** A character whose end never comes holds up no more than this. */
const MAX_WAITING_BYTES = 1_048_576;
const MAX_REST_OF_CHARACTER = 3;

export class LogLines {
  readonly #encoding: Encoding;
  /** In order; the first of them is not finished. */
  #waiting: Waiting[] = [];
  #waitingBytes = 0;
  /** Of each stream, the one that ends in the middle of a character, and how many bytes that lacks. */
  readonly #open = new Map<Stream, { line: Waiting; missing: number }>();
  /** Streams that nothing has come of since the start, or since a gap, and how many bytes that only end a character are passed over: they were told before, or are lost. */
  readonly #fresh = new Map<Stream, number>();

  /** `isResumed`: it does not begin with the log. */
  constructor(encoding: Encoding, isResumed: boolean) {
    this.#encoding = encoding;
    if (isResumed) this.#refresh();
  }

  /** What is told now. What still waits at the end of a log that is not followed is told by whoever goes on at the last line's offset. */
  push(event: LogEvent): ExecLogLine[] {
    if (event.kind === 'data') return this.#encoding === 'base64' ? [inBase64(event)] : this.#text(event);
    this.#open.clear(); // no end will come
    const before = this.#finished();
    switch (event.kind) {
      case 'gap':
        this.#refresh();
        return [...before, { gap: { from: event.from, to: event.to }, offset: event.offset }];
      case 'exit':
        return [...before, { exit: toExecExit(event.exit), offset: event.offset }];
      case 'lost':
        return [...before, { lost: event.error, offset: event.offset }];
    }
  }

  #refresh(): void {
    this.#fresh.set('stdout', MAX_REST_OF_CHARACTER).set('stderr', MAX_REST_OF_CHARACTER);
  }

  #text({ stream, payload, offset }: Data): ExecLogLine[] {
    let rest = this.#withoutKnown(stream, payload);
    const open = this.#open.get(stream);
    if (open !== undefined) {
      const taken = continuationBytes(rest, open.missing);
      open.line.pieces.push(rest.subarray(0, taken));
      open.missing -= taken;
      rest = rest.subarray(taken);
      if (open.missing === 0 || rest.length > 0) this.#open.delete(stream);
    }
    if (rest.length > 0) {
      const line = { stream, pieces: [rest], offset };
      this.#waiting.push(line);
      this.#waitingBytes += rest.length;
      const half = halfCharacterAtEnd(rest);
      const missing = half === 0 ? 0 : characterLength(rest[rest.length - half] ?? 0) - half;
      if (missing > 0) this.#open.set(stream, { line, missing });
    }
    if (this.#waitingBytes > MAX_WAITING_BYTES) this.#open.clear();
    return this.#finished();
  }

  #withoutKnown(stream: Stream, payload: Uint8Array): Uint8Array {
    const most = this.#fresh.get(stream) ?? 0;
    const known = continuationBytes(payload, most);
    if (known === payload.length) this.#fresh.set(stream, most - known);
    else this.#fresh.delete(stream);
    return payload.subarray(known);
  }

  #finished(): ExecLogLine[] {
    const open = [...this.#open.values()].map(({ line }) => line);
    const until = this.#waiting.findIndex((line) => open.includes(line));
    const finished = until < 0 ? this.#waiting : this.#waiting.slice(0, until);
    this.#waiting = until < 0 ? [] : this.#waiting.slice(until);
    this.#waitingBytes = this.#waiting.reduce((sum, { pieces }) => sum + (pieces[0]?.length ?? 0), 0);
    return finished.map(({ stream, pieces, offset }) => ({
      stream,
      data: decodeUtf8(pieces.length === 1 && pieces[0] !== undefined ? pieces[0] : Buffer.concat(pieces), false).text,
      encoding: 'utf8',
      offset,
    }));
  }
}

const inBase64 = ({ stream, payload, offset }: Data): ExecLogLine => ({
  stream,
  data: Buffer.from(payload.buffer, payload.byteOffset, payload.length).toString('base64'),
  encoding: 'base64',
  offset,
});

/** How many bytes at the start go on with a character, at most `max`. */
function continuationBytes(bytes: Uint8Array, max: number): number {
  let count = 0;
  while (count < max && ((bytes[count] ?? 0) & 0b1100_0000) === 0b1000_0000) count += 1;
  return count;
}

/** Bytes to an exec's stdin. They may stand still for as long as the command reads nothing: only the caller's signal ends that. */
import type { ClientHttp2Stream } from 'node:http2';
import type { Readable } from 'node:stream';
import { ExecStdin } from '@fuse/contract';
import { answered, type JsonCall, openStream, readAnswer, responseHead } from './call.ts';
import type { GuestChannel } from './channel.ts';
import { abandon } from './stream-chunks.ts';
import { drained, writeAhead } from './transfer.ts';
import { wholeWords } from './whole-words.ts';

/** No deadline of its own: the longest that a timer takes, nearly. */
const WRITE_DEADLINE_MS = 24 * 24 * 3_600_000;

export interface StdinOptions {
  /** Of its stdin: what it has already is passed over. Without: behind whatever it has. */
  offset?: number | undefined;
  /** Close it behind these bytes. */
  end?: boolean | undefined;
}

/** Rejects with the body's own error when that fails; what the command has taken until then it has. */
export async function writeExecStdin(
  channel: GuestChannel,
  id: string,
  { offset, end }: StdinOptions,
  body: Readable | Uint8Array,
  signal?: AbortSignal,
): Promise<ExecStdin> {
  const query = new URLSearchParams({
    ...(offset === undefined ? {} : { offset: String(offset) }),
    ...(end === true ? { end: '1' } : {}),
  });
  const call: JsonCall<typeof ExecStdin> = {
    method: 'POST',
    path: `/v1/execs/${encodeURIComponent(id)}/stdin?${query}`,
    what: 'stdin',
    schema: ExecStdin,
    deadlineMs: WRITE_DEADLINE_MS,
    signal,
  };
  if (!(body instanceof Uint8Array)) body.on('error', () => {}); // `send` tells of it
  return answered(channel, call, async (inner) => {
    const session = await channel.session(inner);
    const stream = openStream(session, call, inner);
    try {
      const head = responseHead(stream, call);
      head.catch(() => {});
      // A command that takes no more is answered for before everything was sent.
      const sourceFailed = send(body, stream).then(() => head);
      sourceFailed.catch(() => {});
      await Promise.race([head, sourceFailed]);
      return await readAnswer(stream, call);
    } catch (error) {
      if (error instanceof SourceError) throw error.cause;
      throw await channel.meaning(call.what, error);
    } finally {
      abandon(stream);
      if (!(body instanceof Uint8Array)) body.destroy();
    }
  });
}

class SourceError extends Error {
  override readonly name = 'SourceError';
}

async function send(body: Readable | Uint8Array, stream: ClientHttp2Stream): Promise<void> {
  if (body instanceof Uint8Array) {
    stream.end(body);
    return;
  }
  try {
    for await (const chunk of wholeWords(body)) {
      if (!stream.writable) return;
      if (!writeAhead(stream, chunk)) await drained(stream);
    }
  } catch (cause) {
    if (stream.destroyed || stream.closed) return;
    throw new SourceError('stdin was cut', { cause });
  }
  stream.end();
}

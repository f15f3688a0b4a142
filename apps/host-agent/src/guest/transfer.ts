/** Bytes into a guest and out of it, as streams: no deadline for the whole, none kept in memory, and a part never passes for the whole. */
import type { ClientHttp2Stream, IncomingHttpHeaders } from 'node:http2';
import { Readable } from 'node:stream';
import { AppError } from '@fuse/contract';
import type { z } from 'zod';
import { answered, type Call, type JsonCall, openStream, readAnswer, responseHead } from './call.ts';
import type { GuestChannel } from './channel.ts';
import { GuestTurn } from './guest-turn.ts';
import { abandon, chunksOf } from './stream-chunks.ts';
import { wholeWords } from './whole-words.ts';

const HEAD_DEADLINE_MS = 30_000;
/** Not a deadline for the transfer: GuestTurn guards that. */
const SEND_DEADLINE_MS = 7 * 24 * 3_600_000;

/** Written before the guest has taken it: batches cost it less than chunks that come one by one. */
const AHEAD_BYTES = 524_288;

type Asked = Omit<Call, 'deadlineMs' | 'method'>;

/** The guest's answer once it has all of `body`, which is destroyed in the end. `seen` has every piece that is sent. */
export async function sendToGuest<T extends z.ZodType>(
  channel: GuestChannel,
  asked: Asked & { schema: T },
  body: Readable | Uint8Array,
  seen: (chunk: Uint8Array) => void = () => {},
): Promise<z.output<T>> {
  const call: JsonCall<T> = { ...asked, method: 'PUT', deadlineMs: SEND_DEADLINE_MS };
  if (!(body instanceof Uint8Array)) body.on('error', () => {}); // `send` tells of it
  return answered(channel, call, async (inner) => {
    const session = await channel.session(inner);
    const stream = openStream(session, call, inner);
    const turn = new GuestTurn(stream, call.what);
    // The guest may refuse before it has read everything: then its answer counts, not that it reads no further.
    const sent = send(body, stream, turn, seen);
    sent.catch(() => {});
    try {
      await Promise.all([sent, responseHead(stream, call)]);
      return await readAnswer(stream, call);
    } catch (error) {
      if (error instanceof SourceError) throw error.cause;
      throw turn.late ?? (await channel.meaning(call.what, error));
    } finally {
      turn.end();
      abandon(stream);
      if (!(body instanceof Uint8Array)) body.destroy();
    }
  });
}

/** The caller's own stream failed: nothing of the guest's doing. */
class SourceError extends Error {
  override readonly name = 'SourceError';
}

async function send(
  body: Readable | Uint8Array,
  stream: ClientHttp2Stream,
  turn: GuestTurn,
  seen: (chunk: Uint8Array) => void,
): Promise<void> {
  turn.begin();
  if (body instanceof Uint8Array) {
    seen(body);
    stream.end(body);
    return;
  }
  turn.end();
  try {
    for await (const chunk of wholeWords(body)) {
      if (!stream.writable) return;
      seen(chunk);
      if (writeAhead(stream, chunk)) continue;
      turn.begin();
      await drained(stream);
      turn.end();
    }
  } catch (cause) {
    if (stream.destroyed || stream.closed) return;
    throw new SourceError('the source of the upload failed', { cause });
  }
  turn.begin();
  stream.end();
}

/** Whether more may be written before it is `drained`. */
export const writeAhead = (stream: ClientHttp2Stream, chunk: Uint8Array): boolean =>
  stream.write(chunk) || stream.writableLength <= AHEAD_BYTES;

export function drained(stream: ClientHttp2Stream): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      stream.off('drain', done);
      stream.off('close', done);
      resolve();
    };
    stream.once('drain', done);
    stream.once('close', done);
  });
}

export interface GuestBytes {
  headers: IncomingHttpHeaders;
  /** Fails unless all of it came. To be read, or destroyed. */
  body: Readable;
}

/** `sizeOf` says from the head how many bytes must come; without it, as many as there are until a proper end. */
export async function readFromGuest(
  channel: GuestChannel,
  asked: Asked,
  sizeOf?: (headers: IncomingHttpHeaders) => number,
): Promise<GuestBytes> {
  const call: Call = { ...asked, method: 'GET', deadlineMs: HEAD_DEADLINE_MS };
  return answered(channel, call, async (inner) => {
    const session = await channel.session(inner);
    const stream = openStream(session, call, inner);
    try {
      const headers = await responseHead(stream, call);
      const body = Readable.from(bytesOf(channel, stream, call, sizeOf?.(headers)), { objectMode: false });
      body.once('close', () => abandon(stream));
      return { headers, body };
    } catch (error) {
      abandon(stream);
      throw await channel.meaning(call.what, error);
    }
  });
}

async function* bytesOf(
  channel: GuestChannel,
  stream: ClientHttp2Stream,
  call: Call,
  sizeBytes: number | undefined,
): AsyncGenerator<Buffer> {
  const turn = new GuestTurn(stream, call.what);
  let received = 0;
  try {
    turn.begin();
    for await (const chunk of chunksOf(stream, call.what)) {
      turn.end();
      received += chunk.length;
      if (sizeBytes !== undefined && received > sizeBytes)
        throw new AppError('unavailable', 'the guest sent more than the size it gave');
      yield chunk;
      turn.begin();
    }
    if (sizeBytes !== undefined && received < sizeBytes) throw new Error(`${received} of ${sizeBytes} bytes came`);
  } catch (error) {
    if (turn.late !== undefined) throw turn.late;
    if (call.signal?.aborted === true) throw abortError(call.signal);
    throw await channel.meaning(call.what, error);
  } finally {
    turn.end();
    abandon(stream);
  }
}

const abortError = (signal: AbortSignal): Error =>
  signal.reason instanceof Error ? signal.reason : new Error('aborted', { cause: signal.reason });

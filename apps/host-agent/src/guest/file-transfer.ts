/** Files in and out of a guest, as streams: no total deadline, but none may stand still for long. */
import type { ClientHttp2Stream, IncomingHttpHeaders } from 'node:http2';
import { type Readable, Transform } from 'node:stream';
import { AppError } from '@fuse/contract';
import { GuestFileWritten } from '@fuse/host-protocol';
import { answered, type Call, openStream, readAnswer, responseHead } from './call.ts';
import type { GuestChannel } from './channel.ts';
import { abandon, CutError } from './stream-chunks.ts';

const HEAD_DEADLINE_MS = 30_000;
const STILL_MS = 120_000;
/** Not a deadline for the transfer: `STILL_MS` guards that. */
const WRITE_DEADLINE_MS = 24 * 3_600_000;

export interface FileToWrite {
  path: string;
  mode?: string;
  uid?: number;
  gid?: number;
  sha256?: string;
}

export async function writeGuestFile(
  channel: GuestChannel,
  file: FileToWrite,
  body: Readable | Uint8Array,
  signal?: AbortSignal,
): Promise<GuestFileWritten> {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(file)) if (value !== undefined) query.set(name, String(value));
  const call = {
    method: 'PUT',
    path: `/v1/files?${query}`,
    what: 'a file upload',
    schema: GuestFileWritten,
    deadlineMs: WRITE_DEADLINE_MS,
    signal,
  } as const;
  return answered(channel, call, async (inner) => {
    const session = await channel.session(inner);
    const stream = openStream(session, call, inner);
    const still = failWhenStill(stream, call);
    // The guest may refuse before it has read everything: then its answer counts, not that it reads no further.
    const sent = send(body, stream);
    sent.catch(() => {});
    try {
      const head = responseHead(stream, call);
      head.catch(() => {});
      await Promise.race([Promise.all([sent, head]), still]);
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

/** The caller's own stream failed: nothing of the guest's doing. */
class SourceError extends Error {
  override readonly name = 'SourceError';
}

async function send(body: Readable | Uint8Array, stream: ClientHttp2Stream): Promise<void> {
  if (body instanceof Uint8Array) {
    stream.end(body);
    return;
  }
  try {
    for await (const chunk of body) {
      if (!stream.writable) return;
      if (!stream.write(chunk)) await drained(stream);
    }
  } catch (cause) {
    if (stream.destroyed || stream.closed) return;
    throw new SourceError('the source of the upload failed', { cause });
  }
  stream.end();
}

function drained(stream: ClientHttp2Stream): Promise<void> {
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

/** Rejects when no byte went either way for too long. */
function failWhenStill(stream: ClientHttp2Stream, call: Call): Promise<never> {
  const still = new Promise<never>((_, reject) => {
    stream.setTimeout(STILL_MS, () => {
      reject(new AppError('unavailable', `${call.what} stood still for ${STILL_MS} ms`));
      abandon(stream);
    });
  });
  still.catch(() => {});
  return still;
}

export async function readGuestFile(
  channel: GuestChannel,
  path: string,
  signal?: AbortSignal,
): Promise<{ sizeBytes: number; body: Readable }> {
  const call: Call = {
    method: 'GET',
    path: `/v1/files?${new URLSearchParams({ path })}`,
    what: 'a file download',
    deadlineMs: HEAD_DEADLINE_MS,
    signal,
  };
  return answered(channel, call, async (inner) => {
    const session = await channel.session(inner);
    const stream = openStream(session, call, inner);
    try {
      const sizeBytes = sizeIn(await responseHead(stream, call));
      return { sizeBytes, body: exactly(channel, stream, sizeBytes, call) };
    } catch (error) {
      abandon(stream);
      throw await channel.meaning(call.what, error);
    }
  });
}

function sizeIn(headers: IncomingHttpHeaders): number {
  const text = headers['content-length'] ?? '';
  const size = Number(text);
  if (!/^\d{1,15}$/.test(text)) throw new AppError('unavailable', 'the guest gave a file no size');
  return size;
}

/** The stream's bytes, failing unless they are exactly `sizeBytes`. */
function exactly(channel: GuestChannel, stream: ClientHttp2Stream, sizeBytes: number, call: Call): Readable {
  let received = 0;
  const explain = async (error: Error): Promise<Error> =>
    call.signal?.aborted === true ? abortError(call.signal) : channel.meaning(call.what, error);
  const body = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      received += chunk.length;
      if (received > sizeBytes) done(new AppError('unavailable', 'the guest sent more than the size it gave'));
      else done(null, chunk);
    },
    flush(done) {
      if (received === sizeBytes) done();
      else void explain(new Error(`${received} of ${sizeBytes} bytes came`)).then(done);
    },
    destroy(error, done) {
      abandon(stream);
      done(error);
    },
  });
  void failWhenStill(stream, call).catch((error: Error) => body.destroy(error));
  const cut = (error: Error) => void explain(error).then((meaning) => body.destroy(meaning));
  // It may have ended while nobody listened yet.
  if (stream.readableEnded) body.end();
  else if (stream.destroyed) cut(stream.errored ?? new CutError(call.what));
  else stream.once('error', cut).pipe(body);
  return body;
}

const abortError = (signal: AbortSignal): Error =>
  signal.reason instanceof Error ? signal.reason : new Error('aborted', { cause: signal.reason });

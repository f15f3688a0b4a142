/** One request to the guest: a deadline, a bound on what it answers, and what its errors mean. */
import type { ClientHttp2Session, ClientHttp2Stream, IncomingHttpHeaders, IncomingHttpStatusHeader } from 'node:http2';
import { AppError, type ErrorCode } from '@fuse/contract';
import { GuestErrorBody } from '@fuse/host-protocol';
import { DeadlineError, withDeadline } from '@fuse/runtime';
import type { z } from 'zod';
import type { GuestChannel } from './channel.ts';
import { abandon, CutError, chunksOf } from './stream-chunks.ts';

const MAX_ANSWER_BYTES = 8_388_608;
const MAX_ERROR_BYTES = 65_536;
const MAX_ATTEMPTS = 3;

/** What a guest may claim; any other code of its is a guest that does not work. */
const believedCodes: readonly ErrorCode[] = ['invalid_argument', 'not_found', 'conflict', 'payload_too_large'];

export interface Call {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  path: string;
  /** For messages: "the guest's <what>". */
  what: string;
  deadlineMs: number;
  signal?: AbortSignal | undefined;
}

export interface JsonCall<T extends z.ZodType> extends Call {
  body?: unknown;
  /** Of the answer; absent: it has no body. */
  schema?: T;
  /** How often it is made at most when the channel is cut; 1 where doing it twice is not doing it once. */
  attempts?: number;
}

/** One that a reconnecting channel cut is made again within its deadline. */
export async function callJson<T extends z.ZodType>(channel: GuestChannel, call: JsonCall<T>): Promise<z.output<T>> {
  return answered(channel, call, async (signal) => {
    for (let attempt = 1; ; attempt++) {
      const session = await channel.session(signal);
      try {
        return await exchange(session, call, signal);
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof AppError) throw error;
        if (attempt >= (call.attempts ?? MAX_ATTEMPTS)) throw await channel.meaning(call.what, error);
      }
    }
  });
}

/** Runs `work` under the call's deadline; what is not answered in time is `unavailable`. */
export async function answered<T>(
  channel: GuestChannel,
  call: Call,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  try {
    return await withDeadline(call.deadlineMs, call.what, work, call.signal);
  } catch (cause) {
    if (!(cause instanceof DeadlineError)) throw cause;
    channel.suspect();
    throw new AppError('unavailable', `the guest did not answer ${call.what} in ${call.deadlineMs} ms`, { cause });
  }
}

/** Sends the head of a request; the caller sends the body, if any, and ends it. `signal` and the call's own reset the stream for as long as it is open. */
export function openStream(session: ClientHttp2Session, call: Call, signal: AbortSignal): ClientHttp2Stream {
  signal.throwIfAborted();
  const hasBody = call.method === 'POST' || call.method === 'PUT';
  const stream = session.request(
    { ':method': call.method, ':path': call.path, ...(hasBody ? { 'content-type': 'application/octet-stream' } : {}) },
    { endStream: !hasBody },
  );
  // Failures show to whoever waits on the stream; without a listener they would end the process.
  stream.on('error', () => {});
  const onAbort = () => abandon(stream);
  for (const each of [signal, call.signal]) {
    each?.addEventListener('abort', onAbort, { once: true });
    stream.once('close', () => each?.removeEventListener('abort', onAbort));
  }
  return stream;
}

/** The response's head, once it is there and no error; an error response is read and thrown as AppError. */
export async function responseHead(stream: ClientHttp2Stream, call: Call): Promise<IncomingHttpHeaders> {
  const headers = await new Promise<IncomingHttpHeaders & IncomingHttpStatusHeader>((resolve, reject) => {
    const onClose = () => reject(new CutError(call.what));
    stream.once('close', onClose);
    stream.once('error', reject);
    stream.once('response', (head) => {
      stream.off('close', onClose);
      stream.off('error', reject);
      resolve(head);
    });
  });
  const status = headers[':status'] ?? 0;
  if (status >= 200 && status < 300) return headers;
  throw guestError(call, status, await readAll(stream, MAX_ERROR_BYTES, call));
}

async function exchange<T extends z.ZodType>(
  session: ClientHttp2Session,
  call: JsonCall<T>,
  signal: AbortSignal,
): Promise<z.output<T>> {
  const stream = openStream(session, call, signal);
  try {
    if (call.method === 'POST' || call.method === 'PUT')
      stream.end(call.body === undefined ? undefined : JSON.stringify(call.body));
    await responseHead(stream, call);
    return await readAnswer(stream, call);
  } finally {
    abandon(stream);
  }
}

async function readAll(stream: ClientHttp2Stream, maxBytes: number, call: Call): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of chunksOf(stream, call.what)) {
    size += chunk.length;
    if (size > maxBytes)
      throw new AppError('unavailable', `the guest's answer to ${call.what} is over ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

export async function readAnswer<T extends z.ZodType>(
  stream: ClientHttp2Stream,
  call: JsonCall<T>,
): Promise<z.output<T>> {
  const text = await readAll(stream, MAX_ANSWER_BYTES, call);
  if (call.schema === undefined) return undefined as z.output<T>; // callers without a schema expect nothing
  try {
    return call.schema.parse(JSON.parse(text));
  } catch (cause) {
    throw new AppError('unavailable', `the guest's answer to ${call.what} is not what it should be`, { cause });
  }
}

function guestError(call: Call, status: number, text: string): AppError {
  let body: z.infer<typeof GuestErrorBody>['error'];
  try {
    body = GuestErrorBody.parse(JSON.parse(text)).error;
  } catch (cause) {
    return new AppError('unavailable', `the guest answered ${call.what} with status ${status}`, { cause });
  }
  const message = printable(body.message);
  const code = believedCodes.find((each) => each === body.code);
  if (code === undefined) return new AppError('unavailable', `the guest could not do ${call.what}: ${message}`);
  return new AppError(code, message, body.details === undefined ? {} : { details: body.details });
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: taking them out is the point
const printable = (text: string): string => text.replace(/[\x00-\x1f\x7f]/g, ' ').slice(0, 1024);

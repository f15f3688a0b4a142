/** An upgrade that is not granted is answered by hand, as any other request would be, and its connection closed. */
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { AppError, toEnvelope } from '@fuse/contract';
import type { Logger } from '@fuse/runtime';
import { CLIENT_CLOSED_REQUEST, isClientGone, toAppError } from './error-responses.ts';
import { LINGER_MS, ServerStops } from './peer.ts';
import { toJsonLine } from './response-headers.ts';

export function refuseUpgrade(
  socket: Socket,
  error: unknown,
  { log, requestId, version }: { log: Logger; requestId: string; version: string },
): { status: number; ended: string } {
  if (isClientGone(error)) {
    socket.destroy();
    return { status: CLIENT_CLOSED_REQUEST, ended: 'the client left' };
  }
  const refusal = error instanceof ServerStops ? serverStops() : (toAppError(error) ?? internal(error, requestId));
  if (refusal.status >= 500 && !(error instanceof ServerStops))
    log.error({ err: error, request_id: requestId, code: refusal.code }, 'request failed');
  const body = toJsonLine(toEnvelope(refusal));
  const head = [
    `HTTP/1.1 ${refusal.status} ${STATUS_CODES[refusal.status] ?? 'Refused'}`,
    `Server: fuse-orchestrator/${version}`,
    `X-Request-ID: ${requestId}`,
    ...(refusal.retryAfterSeconds === undefined ? [] : [`Retry-After: ${refusal.retryAfterSeconds}`]),
    'Content-Type: application/json; charset=utf-8',
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Connection: close',
  ];
  const linger = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once('close', () => clearTimeout(linger));
  if (socket.writable) socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
  // What it sent behind its request is read and dropped: closed with bytes unread, it could lose the answer.
  socket.once('end', () => socket.destroySoon()).resume();
  return { status: refusal.status, ended: refusal.code };
}

const serverStops = () => new AppError('unavailable', 'the server restarts', { retryAfterSeconds: 1 });
const internal = (cause: unknown, requestId: string) =>
  new AppError('internal', 'internal error', { details: { request_id: requestId }, cause });

/** What cannot be read as HTTP at all is answered by hand, in contract's envelope, and its connection closed. */

import type { Socket } from 'node:net';
import { AppError, toEnvelope } from '@fuse/contract';

export function answerUnreadable(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const refusal = refusalOf(error.code);
  const body = `${JSON.stringify(toEnvelope(refusal))}\n`;
  socket.end(
    `HTTP/1.1 ${refusal.status} Refused\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  );
}

function refusalOf(code: string | undefined): AppError {
  if (code === 'HPE_HEADER_OVERFLOW')
    return new AppError('payload_too_large', 'the header is too large', { status: 431 });
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT')
    return new AppError('invalid_argument', 'the request was not received in time', { status: 408 });
  return new AppError('invalid_argument', 'the request is not well-formed HTTP');
}

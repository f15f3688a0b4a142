import type { IncomingMessage } from 'node:http';
import { AppError } from '@fuse/contract';

const KEY = /^[+/0-9A-Za-z]{22}==$/;

/** What a WebSocket's request must say besides its `Upgrade`; told before anything is looked up. */
export function requireHandshake({ headers }: IncomingMessage): void {
  const key = headers['sec-websocket-key'];
  if (key === undefined || !KEY.test(key))
    throw new AppError('invalid_argument', 'a WebSocket needs a Sec-WebSocket-Key of 16 bytes in base64', {
      details: { field: 'Sec-WebSocket-Key' },
    });
  if (headers['sec-websocket-version'] !== '13')
    throw new AppError('invalid_argument', 'a WebSocket needs Sec-WebSocket-Version: 13', {
      details: { field: 'Sec-WebSocket-Version' },
    });
}

import type { Writable } from 'node:stream';
import { ClientGone } from './closing.ts';

/** Resolves once the stream has room for more. Rejects with its own error, or ClientGone, when it is closed before. */
export function writeWithRoom(stream: Writable, bytes: Uint8Array): Promise<void> {
  const gone = () => stream.errored ?? new ClientGone('the connection is closed');
  if (stream.destroyed || stream.writableEnded) return Promise.reject(gone());
  if (stream.write(bytes)) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const leave = () => stream.off('drain', onDrain).off('close', onClose);
    const onDrain = () => {
      leave();
      resolve();
    };
    const onClose = () => {
      leave();
      reject(gone());
    };
    stream.on('drain', onDrain).on('close', onClose);
  });
}

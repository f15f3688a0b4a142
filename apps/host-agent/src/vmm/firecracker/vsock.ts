/** Firecracker's way from a Unix socket to a port of the guest's: `CONNECT <port>\n`, answered by `OK <host's port>\n` once the guest has taken the connection. */
import type { Socket } from 'node:net';
import { AppError } from '@fuse/contract';
import { withDeadline } from '@fuse/runtime';

const ANSWER_MS = 3_000;
const MAX_ANSWER_BYTES = 32;

/** Resolves with nothing of what follows lost. Firecracker closes the connection when nobody listens. */
export async function connectToGuestPort(socket: Socket, port: number, signal?: AbortSignal): Promise<void> {
  try {
    await withDeadline(ANSWER_MS, `connection to the guest's port ${port}`, () => handshake(socket, port), signal);
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

function handshake(socket: Socket, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let answer = '';
    const finish = (error?: Error) => {
      socket.off('readable', onReadable);
      socket.off('end', onEnd);
      socket.off('close', onEnd);
      socket.off('error', finish);
      if (error === undefined) resolve();
      else reject(error);
    };
    const onEnd = () => finish(new AppError('unavailable', `the guest does not listen on port ${port}`));
    const onReadable = () => {
      // Byte by byte: what comes after the line is the guest's.
      for (let byte: Buffer | null = socket.read(1); byte !== null; byte = socket.read(1)) {
        answer += byte.toString('latin1');
        if (/^OK \d{1,10}\n$/.test(answer)) {
          finish();
          return;
        }
        if (answer.endsWith('\n') || answer.length >= MAX_ANSWER_BYTES) {
          finish(new AppError('unavailable', `Firecracker answers ${JSON.stringify(answer)} on its vsock`));
          return;
        }
      }
    };
    socket.on('readable', onReadable);
    socket.on('end', onEnd);
    socket.on('close', onEnd);
    socket.on('error', finish);
    socket.write(`CONNECT ${port}\n`);
  });
}

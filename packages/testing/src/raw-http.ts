/** For tests: HTTP/1.1 by hand, to see every byte. */
import { connect, type Socket } from 'node:net';

export interface RawExchange {
  socket: Socket;
  /** Everything so far. */
  received(): Buffer;
  /** Resolves with everything so far once `done` says so; rejects when the connection ends before. */
  until(done: (text: string) => boolean): Promise<string>;
  /** Resolves with everything once the server has ended, and whether it reset the connection. */
  ended: Promise<{ bytes: Buffer; reset: boolean }>;
}

export const upgradeHead = (path: string, protocol: string, headers: Record<string, string> = {}): string =>
  [
    `GET ${path} HTTP/1.1`,
    'Host: fuse.test',
    'Connection: Upgrade',
    `Upgrade: ${protocol}`,
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    '\r\n',
  ].join('\r\n');

/** Writes `bytes` at once, in one piece. It ends when the server does, unless it `staysOpen`. */
export function rawExchange(url: string, bytes: string | Uint8Array, { staysOpen = false } = {}): RawExchange {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
  const chunks: Buffer[] = [];
  let reset = false;
  let over = false;
  const lookers = new Set<() => void>();
  const look = () => {
    for (const one of lookers) one();
  };
  socket.on('data', (chunk) => {
    chunks.push(chunk);
    look();
  });
  socket.on('error', () => {
    reset = true;
  });
  const received = () => Buffer.concat(chunks);
  const ended = new Promise<{ bytes: Buffer; reset: boolean }>((resolve) => {
    const finish = () => {
      over = true;
      resolve({ bytes: received(), reset });
      look();
    };
    socket.once('end', () => {
      if (!staysOpen) socket.end();
      finish();
    });
    socket.once('close', finish);
  });
  socket.write(bytes);
  const until = (done: (text: string) => boolean) =>
    new Promise<string>((resolve, reject) => {
      const check = () => {
        const text = received().toString('latin1');
        if (done(text)) resolve(text);
        else if (over) reject(new Error(`the connection ended with ${JSON.stringify(text)}`));
        else return;
        lookers.delete(check);
      };
      lookers.add(check);
      check();
    });
  return { socket, received, until, ended };
}

import { createServer } from 'node:net';

/** A loopback port that was free just now; somebody else may take it before it is used. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => {
        if (address === null || typeof address === 'string') reject(new Error('no TCP port was given'));
        else resolve(address.port);
      });
    });
  });
}

/** A listener with TLS of its own. */
import type { Server } from 'node:http';
import { type TLSSocket, Server as TlsServer } from 'node:tls';

/** PEM. */
export interface ServerTls {
  cert: string;
  key: string;
}

/** Options of the framework, which types a server with TLS as another one; to its routes it is the same. */
export const tlsOptions = (tls: ServerTls | undefined): object =>
  tls === undefined ? {} : { https: { ...tls, minVersion: 'TLSv1.2' } };

/** For connections from now on. Throws when certificate and key do not belong together, as in the middle of a renewal. */
export function useCertificate(server: Server, { cert, key }: ServerTls): void {
  if (!(server instanceof TlsServer)) throw new Error('a server without TLS gets none while it runs');
  server.setSecureContext({ cert, key, minVersion: 'TLSv1.2' });
}

/** As those without TLS are, for upgrades. Not before the handshake: a client that gives up in the middle of it would never be gone. */
export function allowHalfOpen(server: Server): void {
  server.on('secureConnection', (socket: TLSSocket) => {
    socket.allowHalfOpen = true;
  });
}

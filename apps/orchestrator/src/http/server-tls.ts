/** A listener with TLS of its own. */

/** PEM. */
export interface ServerTls {
  cert: string;
  key: string;
}

/** Options of the framework, which types a server with TLS as another one; to its routes it is the same. Sockets that were upgraded may be half closed. */
export const tlsOptions = (tls: ServerTls | undefined): object =>
  tls === undefined ? {} : { https: { ...tls, minVersion: 'TLSv1.2', allowHalfOpen: true } };

/** Certificates that were renewed are used without a restart: of our own listener, and those that hosts are shown and trusted by. Connections that are open stay. */
import { createSecureContext } from 'node:tls';
import { type Logger, Rereading } from '@fuse/runtime';
import type { OrchestratorConfig } from '../config.ts';
import { type HostTls, secureOptionsOf } from '../hosts/host-request.ts';
import type { App } from './http-server.ts';
import { useCertificate } from './server-tls.ts';

type Certificates = Pick<OrchestratorConfig, 'tls' | 'hostTls'>;

export function rereadCertificates(
  app: App,
  clients: readonly { useTls: (tls: HostTls | undefined) => void }[],
  {
    initial,
    read,
    everyMs,
    log,
  }: NonNullable<OrchestratorConfig['rereadTls']> & { initial: Certificates; log: Logger },
): Rereading<Certificates> {
  return new Rereading<Certificates>(
    { tls: initial.tls, hostTls: initial.hostTls },
    {
      what: 'certificates',
      read,
      everyMs,
      log,
      apply: (now) => {
        createSecureContext(secureOptionsOf(now.hostTls)); // throws when they do not go together
        if (now.tls !== undefined) useCertificate(app.server, now.tls);
        for (const client of clients) client.useTls(now.hostTls);
      },
    },
  );
}

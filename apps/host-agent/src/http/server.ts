/** The host agent's HTTP interface: packages/host-protocol/src/host.ts, word for word. */

import type { IncomingMessage, ServerResponse } from 'node:http';
import { type SecureContextOptions, type TLSSocket, Server as TlsServer } from 'node:tls';
import { AppError, toEnvelope } from '@fuse/contract';
import { FENCE_HEADER, type HostCapacityReport } from '@fuse/host-protocol';
import type { ObjectStore } from '@fuse/object-store';
import { type Logger, newRequestId } from '@fuse/runtime';
import fastify, { type FastifyInstance, LogController, type RawServerDefault } from 'fastify';
import { serializerCompiler, validatorCompiler, type ZodTypeProvider } from 'fastify-type-provider-zod';
import type { Assets } from '../images/assets.ts';
import type { SnapshotTransfer } from '../snapshots/chunks/snapshot-transfer.ts';
import type { Snapshots } from '../snapshots/snapshots.ts';
import type { Vms } from '../vms/vms.ts';
import { bearerCheck } from './auth.ts';
import { chunkRoutes } from './chunk-routes.ts';
import { answerError } from './errors.ts';
import { execConnections } from './exec-connect.ts';
import { execRoutes } from './exec-routes.ts';
import type { Fences } from './fences.ts';
import { fileRoutes } from './file-routes.ts';
import { guestFileRoutes } from './guest-file-routes.ts';
import { healthcheckRoutes } from './healthcheck-routes.ts';
import { HEALTH_PATH, hostRoutes } from './host-routes.ts';
import { networkRoutes } from './network-routes.ts';
import { portTunnels } from './port-tunnel.ts';
import { processRoutes } from './process-routes.ts';
import { snapshotRoutes } from './snapshot-routes.ts';
import { Upgrades } from './upgrades.ts';
import { vmRoutes } from './vm-routes.ts';

export type App = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse<IncomingMessage>,
  Logger,
  ZodTypeProvider
>;

export interface HttpParts {
  log: Logger;
  token: string;
  vms: Vms;
  snapshots: Snapshots;
  transfer: SnapshotTransfer;
  store: ObjectStore;
  assets: Assets;
  capacity: () => Promise<HostCapacityReport>;
  fences: Fences;
  /** Undefined: plain HTTP. */
  tls: ServerTls | undefined;
  /** Aborts when the host agent stops: whoever waits or follows is let go. */
  stopping: AbortSignal;
}

/** PEM. With a client CA, whoever has no certificate of it is not even heard. */
export interface ServerTls {
  cert: string;
  key: string;
  clientCa: string | undefined;
}

const BODY_LIMIT_BYTES = 64 * 1024;

export function createHttpServer(parts: HttpParts): App {
  const app: App = fastify({
    ...secure(parts.tls),
    loggerInstance: parts.log,
    // One wide line a request, below.
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'request_id' }),
    genReqId: newRequestId,
    bodyLimit: BODY_LIMIT_BYTES,
    // Longer than the orchestrator keeps an idle connection, so that it is never cut while a request is on its way.
    keepAliveTimeout: 120_000,
    exposeHeadRoutes: false,
    requestTimeout: 0,
    forceCloseConnections: 'idle',
    return503OnClosing: false,
  }).withTypeProvider<ZodTypeProvider>();
  // Not before the handshake: a client that gives up in the middle of it would never be gone.
  app.server.on('secureConnection', (socket: TLSSocket) => {
    socket.allowHalfOpen = true;
  });
  app.setValidatorCompiler(validatorCompiler);
  app.setSerializerCompiler(serializerCompiler);
  app.setErrorHandler(answerError);
  app.setNotFoundHandler((request, reply) =>
    reply.code(404).send(toEnvelope(new AppError('route_not_found', `there is no ${request.method} ${request.url}`))),
  );

  const checkBearer = bearerCheck(parts.token);
  app.addHook('onRequest', async (request) => {
    if (request.routeOptions.url === HEALTH_PATH) return;
    checkBearer(request.headers.authorization);
    await parts.fences.check(request.headers[FENCE_HEADER]);
  });
  app.addHook('onResponse', async (request, reply) => {
    const line = {
      method: request.method,
      path: request.url,
      status: reply.statusCode,
      duration_ms: Math.round(reply.elapsedTime * 10) / 10,
    };
    if (request.method === 'GET') request.log.debug(line, 'request');
    else request.log.info(line, 'request');
  });

  hostRoutes(app, parts);
  vmRoutes(app, parts);
  snapshotRoutes(app, parts);
  chunkRoutes(app, parts);
  execRoutes(app, parts);
  processRoutes(app, parts);
  fileRoutes(app, parts);
  guestFileRoutes(app, parts);
  networkRoutes(app, parts);
  healthcheckRoutes(app, parts);
  const upgrades = new Upgrades(parts);
  portTunnels(upgrades, parts);
  execConnections(upgrades, parts);
  upgrades.listen(app.server);
  return app;
}

/** Fastify types a server with TLS as another one; to its routes it is the same. */
function secure(tls: ServerTls | undefined): object {
  if (tls === undefined) return {};
  const ofClients = tls.clientCa === undefined ? {} : { requestCert: true, rejectUnauthorized: true };
  return { https: { ...contextOf(tls), ...ofClients } };
}

const contextOf = ({ cert, key, clientCa }: ServerTls): SecureContextOptions => ({
  cert,
  key,
  minVersion: 'TLSv1.2',
  ...(clientCa === undefined ? {} : { ca: clientCa }),
});

/** For connections from now on; those that are open stay. Throws when certificate and key do not belong together, as in the middle of a renewal. */
export function useCertificates({ server }: Pick<App, 'server'>, tls: ServerTls): void {
  if (!(server instanceof TlsServer)) throw new Error('a server without TLS gets none while it runs');
  server.setSecureContext(contextOf(tls));
}

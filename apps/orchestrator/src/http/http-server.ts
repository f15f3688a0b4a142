/**
 * The HTTP server's rules, the same for every route (api.md section 0): who may call, how bodies are read, what errors
 * look like, headers, limits. Routes are added by `registerRoutes`, each file a function of `App`.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import { AppError, toEnvelope } from '@fuse/contract';
import type { Logger } from '@fuse/runtime';
import Fastify, { type FastifyInstance, type FastifyReply, LogController, type RawServerDefault } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import type { AuditSink } from '../audit/audit-log.ts';
import { installAudit } from '../audit/audit-requests.ts';
import { actionConstraint } from './action-constraint.ts';
import { type Authenticator, installAuthentication } from './authentication.ts';
import { type AllowList, installAllowList } from './cidr.ts';
import { installClosing } from './closing.ts';
import { installErrors } from './error-responses.ts';
import { installJsonBodies } from './json-bodies.ts';
import { installMetrics, type Metrics } from './metrics.ts';
import { installRateLimit, type RateLimiter } from './rate-limit.ts';
import { installRequestLog } from './request-log.ts';
import { chooseRequestId, installResponseHeaders, setResponseHeaders } from './response-headers.ts';
import { installRouteList } from './route-list.ts';
import { allowHalfOpen, type ServerTls, tlsOptions } from './server-tls.ts';
import { answerUnreadable } from './unreadable-requests.ts';
import { installUpgrades } from './upgrades.ts';
import { installValidation } from './validation.ts';

export type App = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse<IncomingMessage>,
  Logger,
  ZodTypeProvider
>;

/** Body bytes that a route takes unless it says `bodyLimit`. */
export const DEFAULT_BODY_LIMIT_BYTES = 65_536;
export const LARGE_BODY_LIMIT_BYTES = 1_048_576;

export interface HttpServerOptions {
  version: string;
  authenticator: Authenticator;
  /** Addresses that may ask at all; undefined: every one. */
  allowList?: AllowList | undefined;
  /** Of each credential; undefined: as many requests as it likes. */
  rateLimiter?: RateLimiter | undefined;
  /** Undefined: plain HTTP. */
  tls?: ServerTls | undefined;
  /** Where calls that may change something are written down. */
  audit?: AuditSink | undefined;
  log: Logger;
  metrics: Metrics;
  /** In which a JSON body has to be there; 15 s unless a test says so. */
  bodyDeadlineMs?: number;
  /** Adds the routes. */
  registerRoutes(app: App): void;
}

export function createHttpServer(options: HttpServerOptions): App {
  const { version, log, metrics, authenticator, allowList } = options;
  const app: App = Fastify({
    ...tlsOptions(options.tls),
    loggerInstance: log,
    // No route logs by itself: request-log.ts writes one wide line.
    logController: new LogController({ disableRequestLogging: true }),
    exposeHeadRoutes: false,
    bodyLimit: DEFAULT_BODY_LIMIT_BYTES,
    genReqId: chooseRequestId,
    requestIdHeader: false,
    // Longer than any client keeps an idle connection, so that it is the client who closes.
    keepAliveTimeout: 120_000,
    // Bodies have their own deadline (json-bodies.ts), answers none: exec, wait and SSE last long.
    requestTimeout: 0,
    connectionTimeout: 0,
    forceCloseConnections: 'idle',
    return503OnClosing: false,
    http: { maxHeaderSize: 65_536, headersTimeout: 5_000, connectionsCheckingInterval: 5_000 },
    routerOptions: { maxParamLength: 1_024, ignoreTrailingSlash: false, constraints: { action: actionConstraint } },
    frameworkErrors: (error, request, reply) => {
      setResponseHeaders(request, reply as FastifyReply, version);
      const refusal = new AppError('invalid_argument', error.message, { details: { field: '(path)' } });
      void (reply as FastifyReply).code(refusal.status).send(toEnvelope(refusal));
    },
    clientErrorHandler: answerUnreadable,
  }).withTypeProvider<ZodTypeProvider>();
  installRouteList(app);
  allowHalfOpen(app.server);
  installClosing(app);
  installResponseHeaders(app, version);
  installRequestLog(app);
  installMetrics(app, metrics);
  installAllowList(app, allowList);
  installJsonBodies(app, options.bodyDeadlineMs);
  installValidation(app);
  installErrors(app);
  installAuthentication(app, authenticator);
  if (options.rateLimiter !== undefined) installRateLimit(app, options.rateLimiter);
  if (options.audit !== undefined) installAudit(app, options.audit);
  installUpgrades(app, options);
  options.registerRoutes(app);
  return app;
}

/** One wide line per request. Never a body, a query value or a header. */
import type { Caller } from './authentication.ts';
import type { App } from './http-server.ts';

export function installRequestLog(app: App): void {
  app.addHook('onResponse', async (request, reply) => {
    if (request.routeOptions.config.probe === true) return;
    request.log.info(
      {
        request_id: request.id,
        method: request.method,
        route: request.routeOptions.url ?? '(none)',
        path: request.url.split('?', 1)[0],
        status: reply.statusCode,
        ...callerOf(request.caller),
        duration_ms: Math.round(reply.elapsedTime * 10) / 10,
      },
      'request',
    );
  });
}

/** Undefined: refused before it was known. */
function callerOf(caller: Caller | undefined) {
  if (caller === undefined || caller.actorKind === 'anonymous') return {};
  const { actorKind, tenantId, keyId, environmentId } = caller;
  return {
    caller: actorKind,
    tenant: tenantId,
    ...(keyId === undefined ? {} : { key_id: keyId }),
    ...(environmentId === undefined ? {} : { environment: environmentId }),
  };
}

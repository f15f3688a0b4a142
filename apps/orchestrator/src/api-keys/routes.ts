import { CreateApiKey, type ListApiKeys, TENANT_HEADER } from '@fuse/contract';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { App } from '../http/http-server.ts';
import { idempotentRequest } from '../idempotency/idempotency-key.ts';
import type { ApiKeyService } from './api-key-service.ts';

const config = { scope: 'admin' } as const;
const params = z.object({ id: z.string() });
/** No body at all is an empty one. */
const optionalBody = z.preprocess((body) => body ?? {}, CreateApiKey);

const CREATE_ROUTE = 'POST /v1/api-keys';

export function registerApiKeyRoutes(app: App, keys: ApiKeyService): void {
  app.post('/v1/api-keys', { config, schema: { body: optionalBody } }, async (request, reply) => {
    const { caller, body, headers } = request;
    const { answer, replayed } = await keys.create(
      caller,
      body,
      idempotentRequest(headers, { tenantId: caller.tenantId, route: CREATE_ROUTE, body }),
    );
    request.auditTenantId = answer.tenant_id;
    if (replayed) reply.header('Idempotency-Replayed', 'true');
    return reply.code(201).header('Cache-Control', 'no-store').send(answer);
  });

  app.get(
    '/v1/api-keys',
    { config },
    async (request): Promise<ListApiKeys> => ({ api_keys: await keys.list(administered(request)) }),
  );

  app.delete('/v1/api-keys/:id', { config, schema: { params } }, async (request, reply) => {
    request.auditTenantId = await keys.revoke(request.params.id, administered(request));
    return reply.code(204).send();
  });
}

/** The master's are the keys of all tenants, unless it names one. */
const administered = ({ caller, headers }: FastifyRequest): string | undefined =>
  caller.isMaster && headers[TENANT_HEADER.toLowerCase()] === undefined ? undefined : caller.tenantId;

import { CreateTenant, invalidField, type ListTenants, pageLimit, UpdateTenant } from '@fuse/contract';
import { z } from 'zod';
import type { App } from '../http/http-server.ts';
import { cutPage, decodeCursor, pageQuery, queryText } from '../http/pages.ts';
import { idempotentRequest } from '../idempotency/idempotency-key.ts';
import { toTenant } from './tenant.ts';
import type { TenantService } from './tenant-service.ts';

const config = { auth: 'master' } as const;
const params = z.object({ id: z.string() });
const Cursor = z.object({ id: z.string() });

const CREATE_ROUTE = 'POST /v1/tenants';

export function registerTenantRoutes(app: App, tenants: TenantService): void {
  app.get(
    '/v1/tenants',
    { config, schema: { querystring: z.object({ ...pageQuery, include: queryText }) } },
    async (request): Promise<ListTenants> => {
      const limit = pageLimit(request.query.limit);
      const rows = await tenants.list(decodeCursor(request.query.cursor, Cursor)?.id, limit);
      const { page, ...next } = cutPage(rows, limit, ({ id }) => ({ id }));
      if (!wantsUsage(request.query.include)) return { tenants: page.map((row) => toTenant(row)), ...next };
      const usage = await tenants.usage(page.map(({ id }) => id));
      return { tenants: page.map((row) => toTenant(row, usage.get(row.id))), ...next };
    },
  );

  app.post('/v1/tenants', { config, schema: { body: CreateTenant } }, async (request, reply) => {
    const { caller, body, headers } = request;
    const { answer, replayed } = await tenants.create(
      body,
      idempotentRequest(headers, { tenantId: caller.tenantId, route: CREATE_ROUTE, body }),
    );
    request.auditTenantId = answer.id;
    if (replayed) reply.header('Idempotency-Replayed', 'true');
    return reply.code(201).send(answer);
  });

  app.get('/v1/tenants/:id', { config, schema: { params } }, (request) => tenants.get(request.params.id));

  app.patch('/v1/tenants/:id', { config, schema: { params, body: UpdateTenant } }, (request) => {
    request.auditTenantId = request.params.id;
    return tenants.update(request.params.id, request.body);
  });

  app.delete('/v1/tenants/:id', { config, schema: { params } }, async (request, reply) => {
    request.auditTenantId = request.params.id;
    await tenants.remove(request.params.id);
    return reply.code(204).send();
  });
}

function wantsUsage(include: string | undefined): boolean {
  if (include !== undefined && include !== '' && include !== 'usage') throw invalidField('include', 'can be "usage"');
  return include === 'usage';
}

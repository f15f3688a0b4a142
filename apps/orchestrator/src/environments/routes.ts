import { CreateEnvironment, type ListEnvironments, pageLimit, UpdateEnvironment } from '@fuse/contract';
import { z } from 'zod';
import type { EnvironmentRow } from '../db/schema.ts';
import { requireMaster } from '../http/authentication.ts';
import { clientSignal } from '../http/closing.ts';
import { type App, LARGE_BODY_LIMIT_BYTES } from '../http/http-server.ts';
import { cutPage, decodeCursor, labelQuery, pageQuery, parseLabels, queryText } from '../http/pages.ts';
import { setRateLimit } from '../http/rate-limit-headers.ts';
import { idempotentRequest } from '../idempotency/idempotency-key.ts';
import { type ActionParts, registerActionRoutes } from './action-routes.ts';
import type { EnvironmentEvents } from './environment-events.ts';

const read = { scope: 'environments:read' } as const;
const write = { scope: 'environments:write' } as const;
const params = z.object({ id: z.string() });
const Cursor = z.object({ id: z.string(), tenant_id: z.string().optional() });
const listQuery = z.object({
  ...pageQuery,
  task_id: queryText,
  state: queryText,
  host_id: queryText,
  label: labelQuery,
  all_tenants: z
    .enum(['true', 'false', ''], 'must be true or false')
    .transform((text) => text === 'true')
    .optional(),
});
const eventQuery = z.object({ last_event_id: queryText });

const CREATE_ROUTE = 'POST /v1/environments';

export interface EnvironmentParts extends ActionParts {
  events: EnvironmentEvents;
}

export function registerEnvironmentRoutes(app: App, parts: EnvironmentParts): void {
  const { environments, events } = parts;
  app.get(
    '/v1/environments',
    { config: read, schema: { querystring: listQuery } },
    async (request): Promise<ListEnvironments> => {
      const { limit: rawLimit, cursor, task_id, state, host_id, label, all_tenants } = request.query;
      const isOfAll = all_tenants ?? false;
      if (isOfAll) requireMaster(request.caller);
      const limit = pageLimit(rawLimit);
      const after = decodeCursor(cursor, Cursor);
      const rows = await environments.list({
        tenantId: isOfAll ? undefined : request.caller.tenantId,
        taskId: task_id || undefined,
        state: state || undefined,
        hostId: host_id || undefined,
        labels: parseLabels(label),
        after: after && { id: after.id, tenantId: after.tenant_id },
        limit,
      });
      const { page, ...next } = cutPage(rows, limit, ({ id, tenant_id }) => (isOfAll ? { id, tenant_id } : { id }));
      const view = (row: EnvironmentRow) =>
        isOfAll ? { ...environments.view(row), tenant_id: row.tenant_id } : environments.view(row);
      return { environments: page.map(view), ...next };
    },
  );

  app.post(
    '/v1/environments',
    {
      config: write,
      bodyLimit: LARGE_BODY_LIMIT_BYTES,
      schema: { body: CreateEnvironment },
      attachValidation: true,
      errorHandler: async (error, request) => {
        throw await environments.firstProblem(error, request.body);
      },
    },
    async (request, reply) => {
      if (request.validationError !== undefined) throw request.validationError;
      const { tenantId, keyId } = request.caller;
      const { environment, replayed } = await environments.create({
        tenantId,
        keyId,
        request: request.body,
        idempotent: idempotentRequest(request.headers, { tenantId, route: CREATE_ROUTE, body: request.body }),
        signal: clientSignal(reply),
        stopping: app.closing,
        onCreateRate: (rate) => setRateLimit(reply, rate),
      });
      if (replayed) reply.header('Idempotency-Replayed', 'true');
      return reply.code(request.body.wait === false ? 202 : 201).send(environment);
    },
  );

  app.get('/v1/environments/:id', { config: read, schema: { params } }, async (request) =>
    environments.view(await environments.find(request.caller.tenantId, request.params.id)),
  );

  app.get('/v1/environments/:id/placement', { config: { ...read, own: false }, schema: { params } }, async (request) =>
    environments.placement(request.caller.tenantId, request.params.id),
  );

  app.patch('/v1/environments/:id', { config: write, schema: { params, body: UpdateEnvironment } }, async (request) => {
    const { uid } = await environments.find(request.caller.tenantId, request.params.id);
    return environments.view(await environments.update(uid, request.body));
  });

  app.delete('/v1/environments/:id', { config: write, schema: { params } }, async (request, reply) => {
    const { uid } = await environments.find(request.caller.tenantId, request.params.id);
    await environments.destroy(uid);
    return reply.code(204).send();
  });

  registerActionRoutes(app, parts);

  app.get(
    '/v1/environments/:id/events',
    { config: read, schema: { params, querystring: eventQuery } },
    async (request, reply) => {
      const header = request.headers['last-event-id'];
      await events.stream(reply, {
        tenantId: request.caller.tenantId,
        id: request.params.id,
        lastEventId: typeof header === 'string' ? header : request.query.last_event_id,
      });
    },
  );
}

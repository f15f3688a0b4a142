import {
  AppError,
  CreateEnvironment,
  ExecRequest,
  ForkEnvironment,
  type ListEnvironments,
  pageLimit,
} from '@fuse/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { clientSignal } from '../http/closing.ts';
import { type App, LARGE_BODY_LIMIT_BYTES } from '../http/http-server.ts';
import { cutPage, decodeCursor, pageQuery, queryText } from '../http/pages.ts';
import { parseBody } from '../http/validation.ts';
import { idempotentRequest } from '../idempotency/idempotency-key.ts';
import type { EnvironmentEvents } from './environment-events.ts';
import type { EnvironmentService } from './environment-service.ts';
import type { Forked, ForkRequest } from './fork-environment.ts';

const params = z.object({ id: z.string() });
const Cursor = z.object({ id: z.string() });
const listQuery = z.object({ ...pageQuery, task_id: queryText, state: queryText, host_id: queryText });
const eventQuery = z.object({ last_event_id: queryText });

const CREATE_ROUTE = 'POST /v1/environments';
const FORK_ROUTE = 'POST /v1/environments/{id}?action=fork';
const KNOWN_ACTIONS = ['exec', 'drain', 'fork', 'pause', 'resume', 'rotate-token'] as const;
type Action = (typeof KNOWN_ACTIONS)[number];

export interface EnvironmentParts {
  environments: EnvironmentService;
  events: EnvironmentEvents;
  fork: (request: ForkRequest) => Promise<Forked>;
  exec: (reply: FastifyReply, ref: { tenantId: string; id: string }, request: ExecRequest) => Promise<unknown>;
}

export function registerEnvironmentRoutes(app: App, { environments, events, fork, exec }: EnvironmentParts): void {
  app.get('/v1/environments', { schema: { querystring: listQuery } }, async (request): Promise<ListEnvironments> => {
    const { limit: rawLimit, cursor, task_id, state, host_id } = request.query;
    const limit = pageLimit(rawLimit);
    const rows = await environments.list({
      tenantId: request.caller.tenantId,
      taskId: task_id || undefined,
      state: state || undefined,
      hostId: host_id || undefined,
      afterId: decodeCursor(cursor, Cursor)?.id,
      limit,
    });
    const { page, ...next } = cutPage(rows, limit, ({ id }) => ({ id }));
    return { environments: page.map((row) => environments.view(row)), ...next };
  });

  app.post(
    '/v1/environments',
    { bodyLimit: LARGE_BODY_LIMIT_BYTES, schema: { body: CreateEnvironment } },
    async (request, reply) => {
      const { tenantId } = request.caller;
      const { environment, replayed } = await environments.create({
        tenantId,
        request: request.body,
        idempotent: idempotentRequest(request.headers, { tenantId, route: CREATE_ROUTE, body: request.body }),
        signal: clientSignal(reply),
      });
      if (replayed) reply.header('Idempotency-Replayed', 'true');
      return reply.code(request.body.wait === false ? 202 : 201).send(environment);
    },
  );

  app.get('/v1/environments/:id', { schema: { params } }, async (request) =>
    environments.view(await environments.find(request.caller.tenantId, request.params.id)),
  );

  app.delete('/v1/environments/:id', { schema: { params } }, async (request, reply) => {
    const { uid } = await environments.find(request.caller.tenantId, request.params.id);
    await environments.destroy(uid);
    return reply.code(204).send();
  });

  app.post(
    '/v1/environments/:id',
    // Before the body is read: what is asked, and whether this caller may.
    { bodyLimit: LARGE_BODY_LIMIT_BYTES, schema: { params }, onRequest: async (request) => checkAction(request) },
    async (request, reply) => {
      const action = actionOf(request);
      if (action === 'pause' || action === 'resume') {
        const { uid } = await environments.find(request.caller.tenantId, request.params.id);
        return environments.view(await environments[action](uid));
      }
      if (action === 'fork') {
        const { tenantId } = request.caller;
        const { id } = request.params;
        const body = parseBody(ForkEnvironment, request.body ?? {});
        const { answer, replayed } = await fork({
          tenantId,
          id,
          request: body,
          idempotent: idempotentRequest(request.headers, { tenantId, route: FORK_ROUTE, body: { vm_id: id, ...body } }),
          signal: clientSignal(reply),
        });
        if (replayed) reply.header('Idempotency-Replayed', 'true');
        return reply.code(201).send(answer);
      }
      if (action !== 'exec')
        throw new AppError('unimplemented', `action ${action}: not supported by this version`, {
          details: { field: 'action' },
        });
      const body = parseBody(ExecRequest, request.body);
      return exec(reply, { tenantId: request.caller.tenantId, id: request.params.id }, body);
    },
  );

  app.get('/v1/environments/:id/events', { schema: { params, querystring: eventQuery } }, async (request, reply) => {
    const header = request.headers['last-event-id'];
    await events.stream(reply, {
      tenantId: request.caller.tenantId,
      id: request.params.id,
      lastEventId: typeof header === 'string' ? header : request.query.last_event_id,
    });
  });
}

function actionOf(request: FastifyRequest): Action | undefined {
  const { action } = request.query as { action?: unknown }; // checked right here: the schema would come too late
  return KNOWN_ACTIONS.find((known) => known === action);
}

function checkAction(request: FastifyRequest): void {
  const action = actionOf(request);
  if (action === undefined)
    throw new AppError('invalid_argument', 'missing or unknown action query parameter', {
      details: { field: 'action' },
      hint: `Known actions: ${KNOWN_ACTIONS.join(', ')}.`,
    });
  if (action === 'exec' && !request.caller.isMaster)
    throw new AppError('unauthorized', 'exec needs the master token', { status: 403 });
}

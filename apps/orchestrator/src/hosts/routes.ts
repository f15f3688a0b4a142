import {
  AppError,
  absentIfNull,
  invalidField,
  JoinHost,
  JoinTokenRequest,
  type ListHosts,
  pageLimit,
} from '@fuse/contract';
import { z } from 'zod';
import type { App } from '../http/http-server.ts';
import { cutPage, decodeCursor, pageQuery, queryText } from '../http/pages.ts';
import { idempotentRequest } from '../idempotency/idempotency-key.ts';
import type { HostJoining } from './host-joining.ts';
import type { HostService } from './host-service.ts';
import { GivenRegistration } from './registration.ts';

const master = { auth: 'master' } as const;
const read = { scope: 'hosts:read' } as const;
const params = z.object({ id: z.string() });
const Cursor = z.object({ id: z.string() });

export function registerHostRoutes(app: App, hosts: HostService, joining: HostJoining): void {
  app.get(
    '/v1/hosts',
    { config: read, schema: { querystring: z.object(pageQuery) } },
    async (request): Promise<ListHosts> => {
      const limit = pageLimit(request.query.limit);
      const rows = await hosts.list(decodeCursor(request.query.cursor, Cursor)?.id, limit);
      const { page, ...next } = cutPage(rows, limit, ({ id }) => ({ id }));
      return { hosts: page, ...next };
    },
  );

  app.get('/v1/hosts/:id', { config: read, schema: { params } }, (request) => hosts.get(request.params.id));

  app.post('/v1/hosts', { config: master, schema: { body: GivenRegistration } }, async (request, reply) => {
    const { caller, headers, body } = request;
    const { answer, replayed } = await hosts.register(
      body,
      idempotentRequest(headers, { tenantId: caller.tenantId, route: 'POST /v1/hosts', body }),
    );
    if (replayed) reply.header('Idempotency-Replayed', 'true');
    return reply.code(201).send(answer);
  });

  app.post(
    '/v1/host-join-tokens',
    { config: master, schema: { body: absentIfNull(JoinTokenRequest) } },
    async (request, reply) => {
      const { caller, headers, body = {} } = request;
      const { answer, replayed } = await joining.mint(
        body,
        idempotentRequest(headers, { tenantId: caller.tenantId, route: 'POST /v1/host-join-tokens', body }),
      );
      if (replayed) reply.header('Idempotency-Replayed', 'true');
      return reply.code(201).send(answer);
    },
  );

  // Hosts are no callers of ours: their tokens are checked here.
  app.post('/v1/hosts/join', { config: { auth: 'none' }, schema: { body: JoinHost } }, async (request, reply) =>
    reply.code(201).send(await joining.join(request.headers.authorization, request.body)),
  );

  const action = z.object({ action: queryText, force: queryText });
  app.post('/v1/hosts/:id', { config: master, schema: { params, querystring: action } }, async (request, reply) => {
    const { id } = request.params;
    switch (request.query.action) {
      case 'cordon':
        await hosts.setState(id, 'cordoned');
        break;
      case 'uncordon':
        await hosts.setState(id, 'active');
        break;
      case 'drain':
        await hosts.setState(id, 'draining');
        break;
      case 'probe':
        return reply.code(200).send(await hosts.probe(id));
      case 'lost':
        await hosts.declareLost(id, { force: isForced(request.query.force) });
        break;
      default:
        throw new AppError('invalid_argument', 'missing or unknown action query parameter', {
          details: { field: 'action' },
          hint: 'Known actions: cordon, uncordon, drain, probe, lost.',
        });
    }
    return reply.code(204).send();
  });

  app.delete('/v1/hosts/:id', { config: master, schema: { params } }, async (request, reply) => {
    await hosts.remove(request.params.id);
    return reply.code(204).send();
  });
}

function isForced(force: string | undefined): boolean {
  if (force !== undefined && !['true', 'false', ''].includes(force))
    throw invalidField('force', 'must be true or false');
  return force === 'true';
}

import { AppError, type ListHosts, pageLimit, RegisterHost } from '@fuse/contract';
import { z } from 'zod';
import type { App } from '../http/http-server.ts';
import { cutPage, decodeCursor, pageQuery, queryText } from '../http/pages.ts';
import type { HostService } from './host-service.ts';

const master = { auth: 'master' } as const;
const read = { scope: 'hosts:read' } as const;
const params = z.object({ id: z.string() });
const Cursor = z.object({ id: z.string() });

export function registerHostRoutes(app: App, hosts: HostService): void {
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

  app.post('/v1/hosts', { config: master, schema: { body: RegisterHost } }, async (request, reply) =>
    reply.code(201).send(await hosts.register(request.body)),
  );

  const action = z.object({ action: queryText });
  app.post('/v1/hosts/:id', { config: master, schema: { params, querystring: action } }, async (request, reply) => {
    const { id } = request.params;
    switch (request.query.action) {
      case 'cordon':
        await hosts.setState(id, 'cordoned');
        break;
      case 'uncordon':
        await hosts.setState(id, 'active');
        break;
      default:
        throw new AppError('invalid_argument', 'missing or unknown action query parameter', {
          details: { field: 'action' },
          hint: 'Known actions: cordon, uncordon.',
        });
    }
    return reply.code(204).send();
  });

  app.delete('/v1/hosts/:id', { config: master, schema: { params } }, async (request, reply) => {
    await hosts.remove(request.params.id);
    return reply.code(204).send();
  });
}

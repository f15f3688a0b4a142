import { TicketRequest } from '@fuse/contract';
import { z } from 'zod';
import type { EnvironmentService } from '../environments/environment-service.ts';
import type { App } from '../http/http-server.ts';
import type { Tickets } from './tickets.ts';

const params = z.object({ id: z.string() });

export function registerTicketRoutes(
  app: App,
  { tickets, environments }: { tickets: Tickets; environments: EnvironmentService },
): void {
  app.post(
    '/v1/environments/:id/tickets',
    { config: { auth: 'master' }, schema: { params, body: TicketRequest } },
    async (request, reply) => {
      const environment = await environments.find(request.caller.tenantId, request.params.id);
      return reply.code(201).send(await tickets.issue(environment, request.body));
    },
  );
}

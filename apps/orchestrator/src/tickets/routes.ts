import { TicketRequest } from '@fuse/contract';
import { z } from 'zod';
import type { EnvironmentService } from '../environments/environment-service.ts';
import { requireScope } from '../http/authentication.ts';
import type { App } from '../http/http-server.ts';
import { scopeOfTicket, type Tickets } from './tickets.ts';

const params = z.object({ id: z.string() });

export function registerTicketRoutes(
  app: App,
  { tickets, environments }: { tickets: Tickets; environments: EnvironmentService },
): void {
  app.post(
    '/v1/environments/:id/tickets',
    { config: { scope: ['exec', 'ports'] }, schema: { params, body: TicketRequest } },
    async (request, reply) => {
      const { caller } = request;
      requireScope(caller, scopeOfTicket(request.body));
      const environment = await environments.find(caller.tenantId, request.params.id);
      return reply.code(201).send(await tickets.issue(environment, request.body, caller));
    },
  );
}

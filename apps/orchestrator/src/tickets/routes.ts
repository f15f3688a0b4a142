import { TicketRequest } from '@fuse/contract';
import { z } from 'zod';
import type { EnvironmentService } from '../environments/environment-service.ts';
import { requireScope } from '../http/authentication.ts';
import type { App } from '../http/http-server.ts';
import { idempotentRequest } from '../idempotency/idempotency-key.ts';
import { scopeOfTicket, type Tickets } from './tickets.ts';

const params = z.object({ id: z.string() });
const ROUTE = 'POST /v1/environments/{id}/tickets';

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
      const { answer, replayed } = await tickets.issue(
        environment,
        request.body,
        caller,
        idempotentRequest(request.headers, {
          tenantId: caller.tenantId,
          route: ROUTE,
          body: { uid: environment.uid, proof: caller.proof, ...request.body },
        }),
      );
      if (replayed) reply.header('Idempotency-Replayed', 'true');
      return reply.code(201).send(answer);
    },
  );
}

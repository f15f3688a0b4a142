import { TENANT_HEADER } from '@fuse/contract';
import { z } from 'zod';
import type { App } from '../http/http-server.ts';
import { queryText } from '../http/pages.ts';
import type { FleetEvents } from './fleet-events.ts';

const querystring = z.object({ last_event_id: queryText });

export function registerEventRoutes(app: App, events: FleetEvents): void {
  app.get(
    '/v1/events',
    { config: { scope: 'environments:read' }, schema: { querystring } },
    async ({ caller, headers, query }, reply) => {
      const header = headers['last-event-id'];
      const isEveryTenant = caller.isMaster && headers[TENANT_HEADER.toLowerCase()] === undefined;
      await events.stream(reply, {
        tenantId: isEveryTenant ? undefined : caller.tenantId,
        lastEventId: typeof header === 'string' ? header : query.last_event_id,
      });
    },
  );
}

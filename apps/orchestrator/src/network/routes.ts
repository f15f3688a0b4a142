import type { EnvironmentNetwork } from '@fuse/contract';
import { z } from 'zod';
import type { EnvironmentContext } from '../environments/environment-context.ts';
import type { EnvironmentService } from '../environments/environment-service.ts';
import { clientSignal } from '../http/closing.ts';
import type { App } from '../http/http-server.ts';
import { networkReport } from './network-report.ts';

const params = z.object({ id: z.string() });

export function registerNetworkRoutes(
  app: App,
  { context, environments }: { context: EnvironmentContext; environments: EnvironmentService },
): void {
  app.get(
    '/v1/environments/:id/network',
    { config: { scope: 'environments:read' }, schema: { params } },
    async (request, reply): Promise<EnvironmentNetwork> => {
      const row = await environments.findLast(request.caller.tenantId, request.params.id);
      return networkReport(context, row, clientSignal(reply));
    },
  );
}

import { VmId, VmNetwork, VmNetworkReport } from '@fuse/host-protocol';
import { z } from 'zod';
import type { App, HttpParts } from './server.ts';

const VmParams = z.object({ id: VmId });
const BODY_LIMIT_BYTES = 4 * 1024 * 1024;

export function networkRoutes(app: App, { vms }: HttpParts): void {
  app.put(
    '/v1/vms/:id/network',
    {
      schema: { params: VmParams, body: VmNetwork, response: { 204: z.undefined() } },
      bodyLimit: BODY_LIMIT_BYTES,
    },
    async (request, reply) => {
      await vms.get(request.params.id).setNetwork(request.body);
      return reply.code(204).send();
    },
  );

  app.get('/v1/vms/:id/network', { schema: { params: VmParams, response: { 200: VmNetworkReport } } }, (request) =>
    vms.get(request.params.id).networkReport(),
  );
}

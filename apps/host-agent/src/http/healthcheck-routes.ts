import { Healthcheck } from '@fuse/contract';
import { VmId } from '@fuse/host-protocol';
import { z } from 'zod';
import type { App, HttpParts } from './server.ts';

export function healthcheckRoutes(app: App, { vms }: HttpParts): void {
  app.put(
    '/v1/vms/:id/healthcheck',
    {
      schema: { params: z.object({ id: VmId }), body: Healthcheck, response: { 204: z.undefined() } },
      bodyLimit: 1024 * 1024,
    },
    async (request, reply) => {
      await vms.get(request.params.id).putHealthcheck(request.body);
      return reply.code(204).send();
    },
  );
}

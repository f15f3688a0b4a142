import { CreateVm, HostVm, RestoreVm, VmId, VmNetworkTotals } from '@fuse/host-protocol';
import { z } from 'zod';
import type { App, HttpParts } from './server.ts';

const VmParams = z.object({ id: VmId });
/** Environment variables may be large. */
const CREATE_BODY_LIMIT_BYTES = 32 * 1024 * 1024;

export function vmRoutes(app: App, { vms }: HttpParts): void {
  app.get('/v1/vms', { schema: { response: { 200: z.object({ vms: z.array(HostVm) }) } } }, async () => ({
    vms: vms.list(),
  }));

  app.put(
    '/v1/vms/:id',
    {
      schema: { params: VmParams, body: CreateVm, response: { 200: HostVm, 201: HostVm } },
      bodyLimit: CREATE_BODY_LIMIT_BYTES,
    },
    async (request, reply) => {
      const { vm, created } = await vms.put(request.params.id, request.body);
      return reply.code(created ? 201 : 200).send(vm);
    },
  );

  app.get('/v1/vms/:id', { schema: { params: VmParams, response: { 200: HostVm } } }, async (request) =>
    vms.get(request.params.id).view(),
  );

  app.delete(
    '/v1/vms/:id',
    {
      schema: {
        params: VmParams,
        querystring: z.object({ archive_key: z.string().min(1).max(512).optional() }),
        response: {
          200: z.object({
            destroyed: z.boolean(),
            destroy_ms: z.number(),
            archived: z.boolean(),
            network: VmNetworkTotals.optional(),
          }),
        },
      },
    },
    async (request) => {
      const from = performance.now();
      const destroyed = await vms.destroy(request.params.id, request.query.archive_key);
      return { ...destroyed, destroy_ms: Math.round((performance.now() - from) * 10) / 10 };
    },
  );

  const Answer = { 200: HostVm };

  app.post('/v1/vms/:id/pause', { schema: { params: VmParams, response: Answer } }, async (request) => {
    const vm = vms.get(request.params.id);
    await vm.pause();
    return vm.view();
  });

  app.post('/v1/vms/:id/resume', { schema: { params: VmParams, response: Answer } }, async (request) =>
    vms.resume(request.params.id),
  );

  app.post(
    '/v1/vms/:id/restore',
    { schema: { params: VmParams, body: RestoreVm, response: Answer } },
    async (request) => vms.restore(request.params.id, request.body),
  );
}

import { ListProcesses } from '@fuse/contract';
import { GuestSignal, VmId } from '@fuse/host-protocol';
import { z } from 'zod';
import { callerSignal } from './caller-signal.ts';
import type { App, HttpParts } from './server.ts';

const VmParams = z.object({ id: VmId });
const ProcessParams = z.object({ id: VmId, pid: z.coerce.number().int().positive() });

export function processRoutes(app: App, { vms, stopping }: HttpParts): void {
  app.get(
    '/v1/vms/:id/processes',
    { schema: { params: VmParams, response: { 200: ListProcesses } } },
    async (request, reply) => vms.get(request.params.id).processes(callerSignal(reply, stopping)),
  );

  app.post(
    '/v1/vms/:id/processes/:pid/signal',
    { schema: { params: ProcessParams, body: GuestSignal, response: { 204: z.undefined() } } },
    async (request, reply) => {
      const { id, pid } = request.params;
      const signal = callerSignal(reply, stopping);
      await vms.get(id).withGuest((guest) => guest.signalProcess(pid, request.body, signal));
      return reply.code(204).send();
    },
  );
}

import { CollectedOutputs, CollectOutputs, GuestFiles, GuestFileWritten, VmId } from '@fuse/host-protocol';
import { z } from 'zod';
import { putFiles } from '../files/put-files.ts';
import { collectOutputs } from '../outputs/collect-outputs.ts';
import { callerSignal } from './caller-signal.ts';
import type { App, HttpParts } from './server.ts';

const VmParams = z.object({ id: VmId });
const FILES_BODY_LIMIT_BYTES = 64 * 1024 * 1024;
const FilesWritten = z.object({ files: z.array(z.object({ path: z.string(), ...GuestFileWritten.shape })) });

export function fileRoutes(app: App, { vms, store, stopping }: HttpParts): void {
  app.put(
    '/v1/vms/:id/files',
    {
      schema: { params: VmParams, body: GuestFiles, response: { 200: FilesWritten } },
      bodyLimit: FILES_BODY_LIMIT_BYTES,
    },
    async (request, reply) => {
      const signal = callerSignal(reply, stopping);
      const files = await vms
        .get(request.params.id)
        .withGuest((guest) => putFiles(guest, store, request.body.files, signal));
      return { files };
    },
  );

  app.post(
    '/v1/vms/:id/outputs',
    { schema: { params: VmParams, body: CollectOutputs, response: { 200: CollectedOutputs } } },
    async (request, reply) =>
      collectOutputs(vms.get(request.params.id), store, request.body, callerSignal(reply, stopping)),
  );
}

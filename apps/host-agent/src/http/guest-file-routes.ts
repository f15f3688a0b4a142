/** A guest's files, as bytes, as tar, as events, and what is done with them. Queries are the guest's own, and it checks them. */
import { FILE_OPERATION_LIMIT_BYTES, type FileOperation, fileOperations, TarIn } from '@fuse/contract';
import { GuestFileWritten, VmId } from '@fuse/host-protocol';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import { callerSignal } from './caller-signal.ts';
import { requestBytes, useRawBodies } from './request-bytes.ts';
import { sendStream } from './send-stream.ts';
import type { App, HttpParts } from './server.ts';

const VmParams = z.object({ id: VmId });

export function guestFileRoutes(app: App, parts: HttpParts): void {
  downloads(app, parts);
  // A scope of its own: bodies are streams here.
  void app.register(async (scope: App) => {
    useRawBodies(scope);
    uploads(scope, parts);
  });
  for (const name of Object.keys(fileOperations) as FileOperation[]) operation(app, parts, name); // its keys are that
}

function downloads(app: App, { vms, stopping }: HttpParts): void {
  app.get('/v1/vms/:id/file', { schema: { params: VmParams } }, async (request, reply) => {
    const signal = callerSignal(reply, stopping);
    const { head, body } = await vms
      .get(request.params.id)
      .withGuest((guest) => guest.openFile(queryOf(request), signal));
    const headers = {
      'content-length': head.lengthBytes,
      'file-size': head.sizeBytes,
      'file-mode': head.mode,
      'file-uid': head.uid,
      'file-gid': head.gid,
      'file-modified-ms': head.modifiedMs,
    };
    await sendStream(reply, headers, body);
  });

  app.get('/v1/vms/:id/tar', { schema: { params: VmParams } }, async (request, reply) => {
    const signal = callerSignal(reply, stopping);
    const body = await vms.get(request.params.id).withGuest((guest) => guest.openTar(queryOf(request), signal));
    await sendStream(reply, {}, body);
  });

  app.get('/v1/vms/:id/watch', { schema: { params: VmParams } }, async (request, reply) => {
    const signal = callerSignal(reply, stopping);
    const lines = await vms.get(request.params.id).withGuest((guest) => guest.watchFiles(queryOf(request), signal));
    await sendStream(reply, { 'content-type': 'application/x-ndjson' }, lines);
  });
}

function uploads(scope: App, { vms, stopping }: HttpParts): void {
  scope.put(
    '/v1/vms/:id/file',
    { schema: { params: VmParams, response: { 201: GuestFileWritten } } },
    async (request, reply) => {
      const signal = callerSignal(reply, stopping);
      const written = await vms
        .get(request.params.id)
        .withGuest((guest) => guest.putFile(queryOf(request), requestBytes(request), signal));
      return reply.code(201).send(written);
    },
  );

  scope.put('/v1/vms/:id/tar', { schema: { params: VmParams, response: { 200: TarIn } } }, async (request, reply) => {
    const signal = callerSignal(reply, stopping);
    return vms
      .get(request.params.id)
      .withGuest((guest) => guest.extractTar(queryOf(request), requestBytes(request), signal));
  });
}

function operation(app: App, { vms, stopping }: HttpParts, name: FileOperation): void {
  app.post(
    `/v1/vms/:id/file/${name}`,
    { schema: { params: VmParams, body: fileOperations[name].request }, bodyLimit: FILE_OPERATION_LIMIT_BYTES },
    async (request, reply) => {
      const signal = callerSignal(reply, stopping);
      return vms.get(request.params.id).withGuest((guest) => guest.fileOperation(name, request.body, signal));
    },
  );
}

const queryOf = (request: FastifyRequest): URLSearchParams => new URLSearchParams(request.url.split('?', 2)[1] ?? '');

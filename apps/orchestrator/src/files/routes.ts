import { AppError, type UploadedFile } from '@fuse/contract';
import { z } from 'zod';
import { clientSignal } from '../http/closing.ts';
import type { App } from '../http/http-server.ts';
import { discardBody, refuseOversized, useRawBodies } from '../http/json-bodies.ts';
import { idempotentRequest } from '../idempotency/idempotency-key.ts';
import { declaredSum } from './declared-sum.ts';
import { type FileService, isTooLarge } from './file-service.ts';
import { incomingBytes } from './incoming-bytes.ts';

/** They are programs and inputs of runs. */
const config = { scope: ['files', 'runs'] } as const;
const params = z.object({ id: z.string() });

export function registerFileRoutes(app: App, files: FileService): void {
  // A scope of its own: bodies are streams here.
  void app.register(async (scope: App) => {
    useRawBodies(scope);
    scope.post('/v1/files', { config }, async (request, reply): Promise<UploadedFile> => {
      const { raw, headers } = request;
      const expected = declaredSum(headers);
      const { tenantId } = request.caller;
      const idempotent = (sha256: string) =>
        idempotentRequest(headers, { tenantId, route: 'POST /v1/files', body: { sha256 } });
      idempotent(''); // a bad header is refused before the bytes come
      const declaredBytes = headers['content-length'] === undefined ? undefined : Number(headers['content-length']);
      if ((declaredBytes ?? 0) > files.maxFileBytes) return refuseOversized(raw, files.maxFileBytes);
      try {
        const { answer, replayed } = await files.upload({
          tenantId,
          body: request.body === undefined ? new Uint8Array() : incomingBytes(raw),
          expected,
          declaredBytes,
          idempotent,
          signal: clientSignal(reply),
        });
        if (replayed) {
          reply.header('Idempotency-Replayed', 'true');
          await discardBody(raw);
        }
        return reply.code(201).send(answer);
      } catch (error) {
        if (isTooLarge(error)) return refuseOversized(raw, files.maxFileBytes);
        if (error instanceof AppError) await discardBody(raw); // it may still be sending
        throw error;
      }
    });
  });

  app.get('/v1/files/:id', { config, schema: { params } }, (request) =>
    files.get(request.caller.tenantId, request.params.id),
  );

  app.delete('/v1/files/:id', { config, schema: { params } }, async (request, reply) => {
    await files.delete(request.caller.tenantId, request.params.id);
    return reply.code(204).send();
  });
}

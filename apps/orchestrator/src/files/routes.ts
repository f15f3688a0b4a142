import { AppError, type UploadedFile } from '@fuse/contract';
import { z } from 'zod';
import { clientSignal } from '../http/closing.ts';
import type { App } from '../http/http-server.ts';
import { incomingBody } from '../http/incoming-body.ts';
import { discardBody, refuseOversized, useRawBodies } from '../http/json-bodies.ts';
import { idempotentRequest } from '../idempotency/idempotency-key.ts';
import { declaredSum } from './declared-sum.ts';
import { type FileService, isTooLarge } from './file-service.ts';

const STALLED_MS = 60_000;
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
      const body = request.body === undefined ? undefined : incomingBody(request, STALLED_MS);
      try {
        const { answer, replayed } = await files.upload({
          tenantId,
          body: body ?? new Uint8Array(),
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
      } catch (thrown) {
        const error = body?.endedBy ?? thrown;
        body?.destroy();
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

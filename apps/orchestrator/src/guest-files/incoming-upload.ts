import { Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import { incomingBody } from '../http/incoming-body.ts';
import { discardBody } from '../http/json-bodies.ts';
import type { Upload } from './guest-file-service.ts';
import { STALLED_MS } from './stalled-client.ts';

/** A request's body, of any size, as long as it comes. A refusal waits until the client had time to stop sending. */
export async function incomingUpload<T>(
  request: FastifyRequest,
  work: (upload: Omit<Upload, 'query'>) => Promise<T>,
): Promise<T> {
  const { raw } = request;
  if (request.body === undefined) return work({ body: Readable.from([]), sizeBytes: 0 });
  const declared = raw.headers['content-length'];
  const body = incomingBody(request, STALLED_MS);
  try {
    return await work({ body, sizeBytes: declared === undefined ? undefined : Number(declared) });
  } catch (error) {
    body.destroy();
    await discardBody(raw);
    throw body.endedBy ?? error;
  }
}

/** A request's body as a stream that may be given up without cutting the connection, so that the caller still gets the refusal. */
import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import type { App } from './server.ts';

/** In this scope a body is read by its route: `request.body` is there when there is one. */
export function useRawBodies(app: App): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', async (_request: FastifyRequest, payload: IncomingMessage) => payload);
}

export function requestBytes(request: FastifyRequest): Readable | Uint8Array {
  return request.body === undefined ? new Uint8Array() : Readable.from(chunksOf(request.raw), { objectMode: false });
}

async function* chunksOf(request: IncomingMessage): AsyncGenerator<Uint8Array> {
  yield* request.iterator({ destroyOnReturn: false });
  if (!request.complete) throw new Error('the upload was cut');
}

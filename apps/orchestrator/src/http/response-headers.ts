/** `Server` and `X-Request-ID` on every answer but the probes'; JSON ends with a newline. */

import type { IncomingMessage } from 'node:http';
import { newRequestId } from '@fuse/runtime';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { App } from './http-server.ts';

const REQUEST_ID = /^[A-Za-z0-9_-]{1,128}$/;

export function chooseRequestId(request: Pick<IncomingMessage, 'headers'>): string {
  const given = request.headers['x-request-id'];
  return typeof given === 'string' && REQUEST_ID.test(given) ? given : newRequestId();
}

export const toJsonLine = (payload: unknown): string => `${JSON.stringify(payload)}\n`;

export function setResponseHeaders({ id }: Pick<FastifyRequest, 'id'>, reply: FastifyReply, version: string): void {
  reply.header('Server', `fuse-orchestrator/${version}`);
  reply.header('X-Request-ID', id);
}

export function installResponseHeaders(app: App, version: string): void {
  app.addHook('onRequest', async (request, reply) => {
    if (request.routeOptions.config.probe === true) return;
    setResponseHeaders(request, reply, version);
  });
  app.setReplySerializer(toJsonLine);
}

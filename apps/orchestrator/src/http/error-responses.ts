/** Every error leaves as contract's envelope. What we did not foresee is logged with its cause and shown as `internal error`. */
import { Stream } from 'node:stream';
import { AppError, type ErrorCode, errorCodes, errorStatus, invalidField, toEnvelope } from '@fuse/contract';
import type { FastifyError } from 'fastify';
import { isOfNul } from '../db/database-errors.ts';
import { ClientGone } from './closing.ts';
import type { App } from './http-server.ts';
import { toJsonLine } from './response-headers.ts';
import { RouteTable } from './route-table.ts';

/** For the log and the metrics: nobody reads it. */
export const CLIENT_CLOSED_REQUEST = 499;

export function installErrors(app: App): void {
  const routes = new RouteTable();
  app.addHook('onRoute', (route) => routes.add(route.method, route.url));

  app.setNotFoundHandler((request, reply) => {
    const path = request.url.split('?', 1)[0] ?? '';
    const allowed = routes.methodsOf(path);
    if (allowed.length > 0) return reply.code(405).header('Allow', allowed.join(', ')).send();
    return reply
      .code(404)
      .serializer(toJsonLine)
      .send(toEnvelope(new AppError('route_not_found', `no such route: ${request.method} ${path}`)));
  });

  app.setErrorHandler((error, request, reply) => {
    if (isClientGone(error)) return reply.code(CLIENT_CLOSED_REQUEST).send();
    const known = toAppError(error);
    const shown =
      (isOfNul(error) ? withField(error, request.body) : known) ??
      new AppError('internal', 'internal error', { details: { request_id: request.id }, cause: error });
    const fields = { err: error, request_id: request.id, code: shown.code };
    if (shown.status >= 500 && shown.code !== 'unimplemented') request.log.error(fields, 'request failed');
    if (shown.retryAfterSeconds !== undefined) reply.header('Retry-After', String(shown.retryAfterSeconds));
    if (shown.code === 'payload_too_large' || !request.raw.complete) reply.header('Connection', 'close');
    return reply.code(shown.status).send(toEnvelope(shown));
  });
}

/** The database found a NUL somewhere in what it was given; the body says where. */
function withField(error: AppError, body: unknown): AppError {
  const field = fieldWithNul(body, []);
  return field === undefined ? error : invalidField(field, 'must not hold NUL');
}

function fieldWithNul(value: unknown, path: string[]): string | undefined {
  if (typeof value === 'string') return value.includes('\0') ? path.join('.') || '(body)' : undefined;
  if (typeof value !== 'object' || value === null || value instanceof Stream) return undefined;
  for (const [key, child] of Object.entries(value)) {
    if (key.includes('\0')) return [...path, '(name)'].join('.');
    const found = fieldWithNul(child, [...path, key]);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Streams wrap the reason of their signal. */
export const isClientGone = (error: unknown): boolean =>
  error instanceof ClientGone || (error instanceof Error && error.cause instanceof ClientGone);

/** What the caller is told; undefined: nothing but `internal error`. */
export function toAppError(error: unknown): AppError | undefined {
  if (error instanceof AppError) {
    // The store's and the host's inner workings are not the caller's business; the message of `internal` is for the log. One that says 502 was written for
    // the caller: a host that is being registered cannot be asked.
    return error.code === 'internal' && error.status !== 502 ? undefined : error;
  }
  const status = (error as Partial<FastifyError> | null)?.statusCode;
  if (status === undefined || status < 400 || status >= 500) return undefined;
  const code = errorCodes.find((candidate: ErrorCode) => errorStatus[candidate] === status) ?? 'invalid_argument';
  return new AppError(code, error instanceof Error ? error.message : 'bad request', { status });
}

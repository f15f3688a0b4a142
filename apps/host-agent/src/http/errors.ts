/** Whatever a route throws, as the envelope of the contract. */
import { AppError, toEnvelope } from '@fuse/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { hasZodFastifySchemaValidationErrors } from 'fastify-type-provider-zod';
import { diskFullError, isDiskFull } from '../vms/disk-full.ts';
import { CallerGone } from './caller-signal.ts';

export function toAppError(error: unknown): AppError {
  if (error instanceof AppError) return error;
  if (hasZodFastifySchemaValidationErrors(error)) {
    const [problem] = error.validation;
    const field = problem?.instancePath.slice(1).replaceAll('/', '.') ?? '';
    return new AppError('invalid_argument', `${field}: ${problem?.message ?? 'is not valid'}`, { details: { field } });
  }
  if (isDiskFull(error)) return diskFullError(error);
  const status = error instanceof Error && 'statusCode' in error ? error.statusCode : undefined;
  if (status === 413) return new AppError('payload_too_large', 'the request body is too large');
  if (typeof status === 'number' && status >= 400 && status < 500)
    return new AppError('invalid_argument', error instanceof Error ? error.message : 'bad request', { status });
  return new AppError('internal', 'internal error', { cause: error });
}

export function answerError(error: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const shown = toAppError(error);
  if (error instanceof CallerGone) request.log.debug('the caller has gone');
  else if (shown.code === 'internal') request.log.error({ err: error }, 'request failed');
  else if (shown.status >= 500) request.log.warn({ err: error }, 'request refused');
  if (shown.retryAfterSeconds !== undefined) reply.header('retry-after', shown.retryAfterSeconds);
  return reply.code(shown.status).send(toEnvelope(shown));
}

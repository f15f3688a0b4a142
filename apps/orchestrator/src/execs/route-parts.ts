/** What the routes of execs have in common. */
import { ExecId } from '@fuse/contract';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { EnvironmentRef } from './exec-service.ts';

export const config = { scope: 'exec' } as const;
export const EXECS = '/v1/environments/:id/execs';

export const ofEnvironment = z.object({ id: z.string() });
export const ofExec = z.object({ id: z.string(), exec_id: ExecId });

export const refOf = (request: FastifyRequest, id: string): EnvironmentRef => ({
  tenantId: request.caller.tenantId,
  id,
});

export const wholeNumber = (max: number) =>
  z
    .string()
    .regex(/^\d{1,16}$/, 'must be a whole number')
    .transform(Number)
    .refine((value) => value <= max, `must be at most ${max}`);
export const logOffset = wholeNumber(Number.MAX_SAFE_INTEGER);
export const flag = z
  .enum(['', '0', '1', 'false', 'true'], 'must be 1 or 0')
  .transform((value) => value !== '0' && value !== 'false');

import type { ExecRequest } from '@fuse/contract';
import type { FastifyReply } from 'fastify';
import { clientSignal } from '../http/closing.ts';
import type { EnvironmentRef, ExecService } from './exec-service.ts';
import { toExec } from './exec-view.ts';
import { answerSlowly } from './slow-answer.ts';

/** `?action=exec`. A client that leaves ends the command that it waits for. */
export async function answerExec(
  execs: ExecService,
  reply: FastifyReply,
  ref: EnvironmentRef,
  request: ExecRequest,
): Promise<unknown> {
  const signal = clientSignal(reply);
  if (request.background !== true) return answerSlowly(reply, (sure) => execs.call(ref, request, sure, signal));
  const { exec } = await execs.start(ref, request, 'resource', signal);
  return reply.code(202).send(toExec(exec));
}

import {
  Encoding,
  EXEC_MAX_TIMEOUT_MS,
  type Exec,
  ExecRequest,
  type ExecResult,
  type ListExecs,
  LogStream,
  MAX_LOG_BYTES,
  SignalRequest,
} from '@fuse/contract';
import type { FastifyReply } from 'fastify';
import { z } from 'zod';
import { clientSignal, streamSignal } from '../http/closing.ts';
import { type App, LARGE_BODY_LIMIT_BYTES } from '../http/http-server.ts';
import { parseBody } from '../http/validation.ts';
import type { FoundExec } from './exec-reads.ts';
import type { ExecService } from './exec-service.ts';
import { toExec } from './exec-view.ts';
import type { FollowOptions } from './follow-log.ts';
import { config, EXECS, flag, logOffset, ofEnvironment, ofExec, refOf, wholeNumber } from './route-parts.ts';
import { sendLog } from './send-log.ts';
import { answerSlowly } from './slow-answer.ts';
import { registerStdinRoute } from './stdin-route.ts';

const ofProcess = z.object({
  id: z.string(),
  pid: wholeNumber(4_194_304).refine((pid) => pid > 0, 'must be at least 1'),
});

const startQuery = z.object({ stream: LogStream.optional() });
const listQuery = z.object({ tty: flag.optional() });
const getQuery = z.object({ wait_ms: wholeNumber(EXEC_MAX_TIMEOUT_MS).optional() });
const resultQuery = z.object({ encoding: Encoding.optional() });
const logQuery = z
  .object({
    offset: logOffset.optional(),
    tail: wholeNumber(MAX_LOG_BYTES).optional(),
    follow: flag.optional(),
    stream: LogStream.optional(),
    encoding: Encoding.optional(),
  })
  .refine((query) => query.offset === undefined || query.tail === undefined, {
    path: ['tail'],
    error: 'goes without offset',
  });

export function registerExecRoutes(app: App, execs: ExecService): void {
  app.post(
    EXECS,
    {
      config,
      bodyLimit: LARGE_BODY_LIMIT_BYTES,
      schema: { params: ofEnvironment, querystring: startQuery, body: ExecRequest },
    },
    async (request, reply) => {
      const { stream } = request.query;
      const signal = stream === undefined ? clientSignal(reply) : streamSignal(reply);
      const form = stream === undefined ? 'resource' : 'stream';
      const started = await execs.start(refOf(request, request.params.id), request.body, form, signal);
      if (stream === undefined) return reply.code(started.isNew ? 201 : 200).send(toExec(started.exec));
      const { encoding = 'utf8' } = request.body;
      return answerLog(reply, execs, started, { form: stream, encoding, from: { offset: 0 }, follow: true, signal });
    },
  );

  app.get(
    EXECS,
    { config, schema: { params: ofEnvironment, querystring: listQuery } },
    async (request, reply): Promise<ListExecs> => ({
      execs: await execs.list(refOf(request, request.params.id), request.query.tty ?? false, clientSignal(reply)),
    }),
  );

  app.get(
    `${EXECS}/:exec_id`,
    { config, schema: { params: ofExec, querystring: getQuery } },
    async (request, reply) => {
      const signal = clientSignal(reply);
      const found = await execs.find(refOf(request, request.params.id), request.params.exec_id, signal);
      return answerSlowly<Exec>(reply, (sure) => {
        sure();
        return execs.wait(found, request.query.wait_ms ?? 0, signal);
      });
    },
  );

  app.get(
    `${EXECS}/:exec_id/result`,
    { config, schema: { params: ofExec, querystring: resultQuery } },
    async (request, reply): Promise<ExecResult> => {
      const signal = clientSignal(reply);
      const found = await execs.find(refOf(request, request.params.id), request.params.exec_id, signal);
      return execs.result(found, request.query.encoding ?? 'utf8', signal);
    },
  );

  app.get(
    `${EXECS}/:exec_id/log`,
    { config, schema: { params: ofExec, querystring: logQuery } },
    async (request, reply) => {
      const { tail, follow = false, stream = 'ndjson', encoding = 'utf8' } = request.query;
      const signal = streamSignal(reply);
      const found = await execs.find(refOf(request, request.params.id), request.params.exec_id, signal);
      const from = tail === undefined ? { offset: request.query.offset ?? 0 } : { tail };
      return answerLog(reply, execs, found, { form: stream, encoding, from, follow, signal });
    },
  );

  app.post(`${EXECS}/:exec_id/signal`, { config, schema: { params: ofExec } }, async (request, reply) => {
    const body = parseBody(SignalRequest, request.body ?? {});
    await execs.signal(refOf(request, request.params.id), request.params.exec_id, body, clientSignal(reply));
    return reply.code(204).send();
  });

  app.delete(`${EXECS}/:exec_id`, { config, schema: { params: ofExec } }, async (request, reply) => {
    await execs.kill(refOf(request, request.params.id), request.params.exec_id, clientSignal(reply));
    return reply.code(204).send();
  });

  app.get('/v1/environments/:id/processes', { config, schema: { params: ofEnvironment } }, (request, reply) =>
    execs.processes(refOf(request, request.params.id), clientSignal(reply)),
  );

  app.post(
    '/v1/environments/:id/processes/:pid/signal',
    { config, schema: { params: ofProcess } },
    async (request, reply) => {
      const body = parseBody(SignalRequest, request.body ?? {});
      await execs.signalProcess(refOf(request, request.params.id), request.params.pid, body, clientSignal(reply));
      return reply.code(204).send();
    },
  );

  registerStdinRoute(app, execs);
}

async function answerLog(
  reply: FastifyReply,
  execs: ExecService,
  found: FoundExec,
  { form, encoding, ...options }: FollowOptions & { form: LogStream; encoding: Encoding },
): Promise<FastifyReply> {
  const log = await execs.log(found, options);
  await sendLog(reply, { execId: found.exec.id, log, form, encoding, signal: options.signal });
  return reply;
}

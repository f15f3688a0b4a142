import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { ExecStdin } from '@fuse/contract';
import { GuestSignal, HostExec, HostExecResult, StartExec, VmId } from '@fuse/host-protocol';
import { z } from 'zod';
import { ExecId } from '../execs/exec-record.ts';
import { execResult } from '../execs/exec-result.ts';
import { followLog, startOfLog } from '../execs/follow-log.ts';
import { callerSignal } from './caller-signal.ts';
import { LogPlace, placeOf, wholeNumber } from './log-place.ts';
import { requestBytes, useRawBodies } from './request-bytes.ts';
import type { App, HttpParts } from './server.ts';

const VmParams = z.object({ id: VmId });
const ExecParams = z.object({ id: VmId, eid: ExecId });
const START_BODY_LIMIT_BYTES = 32 * 1024 * 1024;
const MAX_WAIT_MS = 60_000;
const MAX_START_WAIT_MS = 10_000;
const MAX_RESULT_BYTES = 16 * 1024 * 1024;

const WaitQuery = z.object({ wait_ms: wholeNumber.default(0) });
const ResultQuery = z.object({ limit: wholeNumber.max(MAX_RESULT_BYTES).default(262_144) });
const StartQuery = WaitQuery.extend(ResultQuery.shape);
const flag = z.enum(['0', '1']).default('0');
const LogQuery = LogPlace.extend({ follow: flag, heartbeat: flag });
const StdinQuery = z.object({ offset: wholeNumber.optional(), end: flag });

export function execRoutes(app: App, { vms, stopping }: HttpParts): void {
  app.put(
    '/v1/vms/:id/execs/:eid',
    {
      schema: {
        params: ExecParams,
        querystring: StartQuery,
        body: StartExec,
        response: { 200: HostExec, 201: HostExec },
      },
      bodyLimit: START_BODY_LIMIT_BYTES,
    },
    async (request, reply) => {
      const { id, eid } = request.params;
      const { exec, created } = await vms.get(id).startExec(eid, request.body);
      const { wait_ms, limit } = request.query;
      if (wait_ms > 0) await exec.waitForEnd(Math.min(wait_ms, MAX_START_WAIT_MS), callerSignal(reply, stopping));
      const view = exec.view();
      reply.code(created ? 201 : 200);
      if (wait_ms === 0 || view.state !== 'exited') return view;
      const { stdout_base64, stderr_base64, truncated } = await execResult(exec, limit);
      return { ...view, result: { stdout_base64, stderr_base64, truncated } };
    },
  );

  app.get(
    '/v1/vms/:id/execs/:eid',
    { schema: { params: ExecParams, querystring: WaitQuery, response: { 200: HostExec } } },
    async (request, reply) => {
      const exec = await vms.get(request.params.id).exec(request.params.eid);
      const waitMs = Math.min(request.query.wait_ms, MAX_WAIT_MS);
      if (waitMs > 0) await exec.waitForEnd(waitMs, callerSignal(reply, stopping));
      return exec.view();
    },
  );

  app.get(
    '/v1/vms/:id/execs/:eid/result',
    { schema: { params: ExecParams, querystring: ResultQuery, response: { 200: HostExecResult } } },
    async (request) => execResult(await vms.get(request.params.id).exec(request.params.eid), request.query.limit),
  );

  app.get(
    '/v1/vms/:id/execs',
    { schema: { params: VmParams, response: { 200: z.object({ execs: z.array(HostExec) }) } } },
    async (request) => ({ execs: (await vms.get(request.params.id).execs()).map((exec) => exec.view()) }),
  );

  app.get(
    '/v1/vms/:id/execs/:eid/log',
    { schema: { params: ExecParams, querystring: LogQuery } },
    async (request, reply) => {
      const exec = await vms.get(request.params.id).exec(request.params.eid);
      const signal = callerSignal(reply, stopping);
      const { follow, heartbeat } = request.query;
      const from = await startOfLog(exec.log, placeOf(request.query));
      const log = followLog(exec, from, { follow: follow === '1', heartbeat: heartbeat === '1', signal });
      // By hand: the head goes out before the first byte of output, and an error cuts the connection, so that nobody takes it for an end.
      reply.hijack();
      reply.raw.writeHead(200, {
        'content-type': 'application/octet-stream',
        'cache-control': 'no-store',
        'fuse-log-offset': from,
      });
      reply.raw.flushHeaders();
      await pipeline(Readable.from(log, { objectMode: false }), reply.raw, { signal }).catch((error: unknown) =>
        request.log.debug({ err: error }, 'log stream cut'),
      );
    },
  );

  app.post(
    '/v1/vms/:id/execs/:eid/signal',
    { schema: { params: ExecParams, body: GuestSignal, response: { 204: z.undefined() } } },
    async (request, reply) => {
      const { id, eid } = request.params;
      const vm = vms.get(id);
      const exec = await vm.exec(eid);
      // What it left in the background is of its tree still.
      const reaches = exec.running || request.body.tree === true;
      if (reaches) await vm.withGuest(() => exec.signal(request.body, callerSignal(reply, stopping)));
      return reply.code(204).send();
    },
  );

  // A scope of its own: the body is a stream here.
  void app.register(async (scope: App) => {
    useRawBodies(scope);
    scope.post(
      '/v1/vms/:id/execs/:eid/stdin',
      { schema: { params: ExecParams, querystring: StdinQuery, response: { 200: ExecStdin } } },
      async (request, reply) => {
        const { id, eid } = request.params;
        const vm = vms.get(id);
        const exec = await vm.exec(eid);
        const { offset, end } = request.query;
        const options = { offset, end: end === '1' };
        const signal = callerSignal(reply, stopping);
        return await vm.withGuest(() => exec.writeStdin(options, requestBytes(request), signal));
      },
    );
  });

  app.delete(
    '/v1/vms/:id/execs/:eid',
    { schema: { params: ExecParams, response: { 204: z.undefined() } } },
    async (request, reply) => {
      await vms.get(request.params.id).killExec(request.params.eid);
      return reply.code(204).send();
    },
  );
}

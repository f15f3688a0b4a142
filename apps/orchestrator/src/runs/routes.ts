import { performance } from 'node:perf_hooks';
import { AppError, CreateRun, type ListRuns, pageLimit, RUN_BODY_LIMIT_BYTES, type RunOutput } from '@fuse/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { clientSignal } from '../http/closing.ts';
import { openEventStream } from '../http/event-stream.ts';
import type { App } from '../http/http-server.ts';
import { decodeCursor, labelQuery, pageQuery, parseLabels, queryText } from '../http/pages.ts';
import { setRateLimit } from '../http/rate-limit-headers.ts';
import { idempotentRequest } from '../idempotency/idempotency-key.ts';
import { checkDownload } from './download-url.ts';
import { formatPosition, parsePosition } from './event-position.ts';
import { outputSigner, type UrlContext } from './output-urls.ts';
import { type EventsContext, runEvents } from './run-events.ts';
import type { RunService } from './run-service.ts';
import { type SignOutput, toRunOutput } from './run-view.ts';
import { sendOutput } from './send-output.ts';

export interface RunRoutes {
  runs: RunService;
  events: EventsContext;
  urls: UrlContext;
}

const config = { scope: 'runs' } as const;
const params = z.object({ id: z.string() });
const Cursor = z.object({ id: z.string() });
const listQuery = z.object({
  ...pageQuery,
  state: queryText,
  image: queryText,
  label: labelQuery,
});
const CREATE_ROUTE = 'POST /v1/runs';
/** When the head of a request was here; its body may have taken a while. */
const arrivals = new WeakMap<FastifyRequest, number>();

export function registerRunRoutes(app: App, { runs, events, urls }: RunRoutes): void {
  const signerFor = (request: FastifyRequest): SignOutput =>
    outputSigner(urls, `${request.protocol}://${request.host}`);

  // A client that waits is told that its run goes on.
  const stopping = new AbortController();
  const stop = () =>
    stopping.abort(
      new AppError('unavailable', 'the orchestrator stops, the run goes on', {
        retryAfterSeconds: 1,
        hint: 'repeat the request with its Idempotency-Key, or find the run in GET /v1/runs',
      }),
    );
  app.closing.addEventListener('abort', stop, { once: true });

  app.post(
    '/v1/runs',
    {
      config,
      bodyLimit: RUN_BODY_LIMIT_BYTES,
      schema: { body: CreateRun },
      preParsing: async (request) => {
        arrivals.set(request, performance.now());
      },
    },
    async (request, reply) => {
      const { tenantId } = request.caller;
      const { run, ended, replayed } = await runs.create({
        tenantId,
        body: request.body,
        idempotent: idempotentRequest(request.headers, { tenantId, route: CREATE_ROUTE, body: request.body }),
        receivedAt: arrivals.get(request) ?? performance.now(),
        sign: signerFor(request),
        signal: AbortSignal.any([clientSignal(reply), stopping.signal]),
        onCreateRate: (rate) => setRateLimit(reply, rate),
      });
      if (replayed) reply.header('Idempotency-Replayed', 'true');
      return reply
        .code(ended ? 200 : 202)
        .header('Location', `/v1/runs/${run.id}`)
        .send(run);
    },
  );

  app.get('/v1/runs', { config, schema: { querystring: listQuery } }, async (request): Promise<ListRuns> => {
    const { limit, cursor, state, image, label } = request.query;
    const filter = {
      tenantId: request.caller.tenantId,
      state: state || undefined,
      image: image || undefined,
      labels: parseLabels(label),
      beforeId: decodeCursor(cursor, Cursor)?.id,
    };
    return runs.list(filter, pageLimit(limit), signerFor(request));
  });

  app.get('/v1/runs/:id', { config, schema: { params } }, (request) =>
    runs.get(request.caller.tenantId, request.params.id, signerFor(request)),
  );

  app.post(
    '/v1/runs/:id',
    { config, schema: { params, querystring: z.object({ action: queryText }) } },
    async (request) => {
      if (request.query.action !== 'cancel')
        throw new AppError('invalid_argument', 'missing or unknown action query parameter', {
          details: { field: 'action' },
          hint: 'Known actions: cancel.',
        });
      return runs.cancel(request.caller.tenantId, request.params.id, signerFor(request));
    },
  );

  app.get(
    '/v1/runs/:id/events',
    { config, schema: { params, querystring: z.object({ last_event_id: queryText }) } },
    async (request, reply) => {
      const header = request.headers['last-event-id'];
      const position = parsePosition(typeof header === 'string' ? header : request.query.last_event_id);
      const { id } = await runs.find(request.caller.tenantId, request.params.id);
      await streamEvents(events, { runId: id, position }, reply);
    },
  );

  app.get(
    '/v1/runs/:id/outputs',
    { config, schema: { params } },
    async (request): Promise<{ outputs: RunOutput[] }> => {
      const sign = signerFor(request);
      const outputs = await runs.outputs(request.caller.tenantId, request.params.id);
      return { outputs: await Promise.all(outputs.map((output) => toRunOutput(output, sign))) };
    },
  );

  app.get(
    '/v1/runs/:id/outputs/*',
    { config, schema: { params: z.object({ id: z.string(), '*': z.string() }) } },
    async (request, reply) => {
      const { id, '*': path } = request.params;
      await runs.find(request.caller.tenantId, id);
      const output = await runs.output(id, { path });
      if (output === undefined) throw new AppError('not_found', `run ${id} has no output "${path}"`);
      return sendOutput(urls.objectStore, output, request, reply);
    },
  );

  app.get(
    '/v1/downloads/:id/:position',
    {
      config: { auth: 'none' },
      schema: {
        params: z.object({ id: z.string(), position: z.string() }),
        querystring: z.object({ expires: queryText, signature: queryText }),
      },
    },
    async (request, reply) => {
      const { id, position } = request.params;
      const { expires, signature = '' } = request.query;
      const download = { runId: id, position: Number(position), expiresUnixSeconds: Number(expires) };
      checkDownload(urls.signingKey, download, signature, urls.clock.now());
      const output = await runs.signedOutput(id, download.position);
      if (output === undefined) throw new AppError('not_found', 'this output is no longer kept');
      return sendOutput(urls.objectStore, output, request, reply);
    },
  );
}

async function streamEvents(
  events: EventsContext,
  { runId, position }: { runId: string; position: ReturnType<typeof parsePosition> },
  reply: FastifyReply,
): Promise<void> {
  const stream = openEventStream(reply);
  try {
    for await (const delivery of runEvents(events, runId, position, stream.signal))
      await stream.send({ id: formatPosition(delivery.position), data: delivery.event });
  } catch (error) {
    if (!stream.signal.aborted) events.log.error({ err: error, run_id: runId }, 'event stream of a run broke off');
  } finally {
    stream.close();
  }
}

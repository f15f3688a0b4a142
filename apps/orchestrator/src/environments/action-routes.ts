/** `POST /v1/environments/{id}?action=`: each action a route of its own. Those without a body take none notice of one. */
import { AppError, ExecRequest, ForkEnvironment } from '@fuse/contract';
import type { FastifyReply } from 'fastify';
import { z } from 'zod';
import { clientSignal } from '../http/closing.ts';
import { type App, LARGE_BODY_LIMIT_BYTES } from '../http/http-server.ts';
import { setRateLimit } from '../http/rate-limit-headers.ts';
import { idempotentRequest } from '../idempotency/idempotency-key.ts';
import type { EnvironmentService } from './environment-service.ts';
import type { Forked, ForkRequest } from './fork-environment.ts';

const PATH = '/v1/environments/:id';
const FORK_ROUTE = 'POST /v1/environments/{id}?action=fork';
const KNOWN_ACTIONS = ['exec', 'drain', 'fork', 'pause', 'resume', 'rotate-token'] as const;
type Action = (typeof KNOWN_ACTIONS)[number];

const params = z.object({ id: z.string() });
const write = { scope: 'environments:write' } as const;
const only = (action: Action) => ({ action });

export interface ActionParts {
  environments: EnvironmentService;
  fork: (request: ForkRequest) => Promise<Forked>;
  /** Awaited once a credential was replaced: this process knows that from then on. */
  refreshCredentials: () => Promise<void>;
  exec: (reply: FastifyReply, ref: { tenantId: string; id: string }, request: ExecRequest) => Promise<unknown>;
}

export function registerActionRoutes(app: App, { environments, fork, exec, refreshCredentials }: ActionParts): void {
  // Before the body is read, and before anything is looked up.
  app.post(
    PATH,
    {
      config: { scope: ['environments:write', 'exec'] },
      onRequest: async () => {
        throw unknownAction();
      },
    },
    async () => {
      throw unknownAction();
    },
  );

  app.post(
    PATH,
    {
      constraints: only('exec'),
      config: { scope: 'exec' },
      bodyLimit: LARGE_BODY_LIMIT_BYTES,
      schema: { params, body: ExecRequest },
    },
    async (request, reply) => exec(reply, { tenantId: request.caller.tenantId, id: request.params.id }, request.body),
  );

  app.post(
    PATH,
    { constraints: only('fork'), config: write, schema: { params, body: ForkEnvironment.nullish() } },
    async (request, reply) => {
      const { tenantId, keyId } = request.caller;
      const { id } = request.params;
      const body = request.body ?? {};
      const { answer, replayed } = await fork({
        tenantId,
        keyId,
        id,
        request: body,
        idempotent: idempotentRequest(request.headers, { tenantId, route: FORK_ROUTE, body: { vm_id: id, ...body } }),
        signal: clientSignal(reply),
        onCreateRate: (rate) => setRateLimit(reply, rate),
      });
      if (replayed) reply.header('Idempotency-Replayed', 'true');
      return reply.code(201).send(answer);
    },
  );

  for (const action of ['drain', 'pause', 'resume'] as const)
    app.post(PATH, { constraints: only(action), config: write, schema: { params } }, async (request) => {
      const { uid } = await environments.find(request.caller.tenantId, request.params.id);
      return environments.view(await environments[action](uid));
    });

  app.post(PATH, { constraints: only('rotate-token'), config: write, schema: { params } }, async (request, reply) => {
    const { uid } = await environments.find(request.caller.tenantId, request.params.id);
    await environments.rotateToken(uid).finally(refreshCredentials);
    return reply.code(204).send();
  });
}

const unknownAction = (): AppError =>
  new AppError('invalid_argument', 'missing or unknown action query parameter', {
    details: { field: 'action' },
    hint: `Known actions: ${KNOWN_ACTIONS.join(', ')}.`,
  });

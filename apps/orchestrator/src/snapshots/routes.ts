import {
  AppError,
  CreateSnapshot,
  FREED_HOST_BYTES_HEADER,
  FREED_STORE_BYTES_HEADER,
  invalidField,
  type ListSnapshots,
  pageLimit,
} from '@fuse/contract';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import { knownArch } from '../environments/environment.ts';
import type { Caller } from '../http/authentication.ts';
import type { App } from '../http/http-server.ts';
import { CursorInstant } from '../http/instants.ts';
import { cutPage, decodeCursor, pageQuery, queryText } from '../http/pages.ts';
import { idempotentRequest } from '../idempotency/idempotency-key.ts';
import { toSnapshot } from './snapshot.ts';
import type { SnapshotService } from './snapshot-service.ts';

const config = { scope: 'snapshots' } as const;
const params = z.object({ id: z.string() });
const Cursor = z.object({ created_at: CursorInstant, id: z.string() });
const filters = ['vm_id', 'task_id', 'tenant_id', 'state', 'mode', 'name', 'layer_key'] as const;
const listQuery = z.object({
  ...pageQuery,
  arch: queryText,
  ...(Object.fromEntries(filters.map((name) => [name, queryText])) as Record<
    (typeof filters)[number],
    typeof queryText
  >), // fromEntries forgets the names
});
const resolveQuery = z.object({ layer_key: queryText, arch: queryText });
const deleteQuery = z.object({ force: queryText });
const restoreQuery = z.object({ action: queryText, fallback: queryText });
/** No body at all is an empty one. */
const optionalBody = z.preprocess((body) => body ?? {}, CreateSnapshot);

const CREATE_ROUTE = 'POST /v1/environments/{id}/snapshots';

export function registerSnapshotRoutes(app: App, snapshots: SnapshotService): void {
  app.post(
    '/v1/environments/:id/snapshots',
    { config, schema: { params, body: optionalBody } },
    async (request, reply) => {
      const { tenantId, keyId } = request.caller;
      const { id: vmId } = request.params;
      const { snapshot, replayed } = await snapshots.create({
        tenantId,
        vmId,
        keyId,
        request: request.body,
        idempotent: idempotentRequest(request.headers, {
          tenantId,
          route: CREATE_ROUTE,
          body: { vm_id: vmId, ...request.body },
        }),
      });
      if (replayed) reply.header('Idempotency-Replayed', 'true');
      return reply.code(201).send(snapshot);
    },
  );

  app.get('/v1/snapshots', { config, schema: { querystring: listQuery } }, async (request): Promise<ListSnapshots> => {
    const { limit: rawLimit, cursor, arch, ...query } = request.query;
    const limit = pageLimit(rawLimit);
    const rows = await snapshots.list({
      tenantId: request.caller.tenantId,
      ...Object.fromEntries(filters.map((name) => [name, query[name] || undefined])),
      arch: arch === undefined || arch === '' ? undefined : (knownArch(arch) ?? arch),
      after: decodeCursor(cursor, Cursor),
      limit,
    });
    const { page, ...next } = cutPage(rows, limit, ({ position, id }) => ({ created_at: position, id }));
    return { snapshots: page.map(toSnapshot), ...next };
  });

  app.get('/v1/snapshots/resolve', { config, schema: { querystring: resolveQuery } }, async (request) => {
    const { layer_key: layerKey, arch } = request.query;
    if (!layerKey) throw required('layer_key');
    if (!arch) throw required('arch');
    const { tenantId } = request.caller;
    return snapshots.resolve({ tenantId, madeBy: layerMaker(request.caller), layerKey, arch: knownArch(arch) ?? arch });
  });

  app.get('/v1/snapshots/:id', { config, schema: { params } }, async (request) =>
    toSnapshot(await snapshots.get(request.caller.tenantId, request.params.id)),
  );

  app.delete('/v1/snapshots/:id', { config, schema: { params, querystring: deleteQuery } }, async (request, reply) => {
    const { force } = request.query;
    if (force !== undefined && !['true', 'false', ''].includes(force))
      throw invalidField('force', 'must be true or false');
    const freed = await snapshots.delete(request.params.id, {
      force: force === 'true',
      tenantId: request.caller.tenantId,
    });
    return reply
      .code(204)
      .header(FREED_HOST_BYTES_HEADER, String(freed.hostBytes))
      .header(FREED_STORE_BYTES_HEADER, String(freed.storeBytes))
      .send();
  });

  app.post(
    '/v1/snapshots/:id',
    { config, schema: { params, querystring: restoreQuery }, onRequest: async (request) => checkAction(request) },
    async (request, reply) => {
      const { fallback } = request.query;
      if (fallback !== undefined && fallback !== '' && fallback !== 'disk')
        throw invalidField('fallback', 'must be disk, or left out');
      await snapshots.restore({
        tenantId: request.caller.tenantId,
        id: request.params.id,
        fallback: fallback === 'disk' ? 'disk' : undefined,
      });
      return reply.code(204).send();
    },
  );
}

/** Published clients see the layers that their own key made (api.md 2.9); keys with scopes see all of their tenant's. */
function layerMaker({ scopes, keyId }: Caller): string | null | undefined {
  if (scopes === 'all') return null;
  return scopes === 'plain' ? keyId : undefined;
}

const required = (field: string) => new AppError('invalid_argument', `${field} is required`, { details: { field } });

/** Before anything is looked up. */
function checkAction(request: FastifyRequest): void {
  const { action } = request.query as { action?: unknown }; // the schema would come too late
  if (action !== 'restore')
    throw new AppError('invalid_argument', 'missing or unknown action query parameter', {
      details: { field: 'action' },
      hint: 'The known action is restore.',
    });
}

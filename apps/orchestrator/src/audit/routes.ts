import { Readable } from 'node:stream';
import { invalidField, type ListAudit, pageLimit, TENANT_HEADER } from '@fuse/contract';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Db } from '../db/db.ts';
import type { App } from '../http/http-server.ts';
import { instant } from '../http/instants.ts';
import { cutPage, decodeCursor, pageQuery, queryText } from '../http/pages.ts';
import { type AuditFilter, newestFirst, oldestFirst, toEntry } from './audit-store.ts';

const Cursor = z.object({ id: z.string().regex(/^\d{1,16}$/) });
const querystring = z.object({
  ...pageQuery,
  from: queryText,
  to: queryText,
  actor: queryText,
  target: queryText,
  route: queryText,
  status: queryText,
  format: z.enum(['json', 'ndjson', '']).optional(),
});

export function registerAuditRoutes(app: App, db: Db): void {
  app.get('/v1/audit', { config: { scope: 'admin' }, schema: { querystring } }, async (request, reply) => {
    const filter = filterOf(request, request.query);
    if (request.query.format === 'ndjson')
      return reply
        .type('application/x-ndjson')
        .header('Cache-Control', 'no-store')
        .send(Readable.from(lines(db, filter)));
    const limit = pageLimit(request.query.limit);
    const beforeId = decodeCursor(request.query.cursor, Cursor)?.id;
    const rows = await newestFirst(db.query, filter, beforeId === undefined ? undefined : Number(beforeId), limit + 1);
    const { page, ...next } = cutPage(rows, limit, ({ id }) => ({ id: String(id) }));
    const list: ListAudit = { entries: page.map(toEntry), ...next };
    return list;
  });
}

/** Nothing is read ahead of the client. */
async function* lines(db: Db, filter: AuditFilter): AsyncGenerator<string> {
  for await (const entry of oldestFirst(db.query, filter)) yield `${JSON.stringify(entry)}\n`;
}

function filterOf({ caller, headers }: FastifyRequest, query: z.infer<typeof querystring>): AuditFilter {
  const isEveryTenant = caller.isMaster && headers[TENANT_HEADER.toLowerCase()] === undefined;
  return {
    tenantId: isEveryTenant ? undefined : caller.tenantId,
    from: instant('from', query.from),
    to: instant('to', query.to),
    actor: query.actor || undefined,
    target: query.target || undefined,
    route: query.route || undefined,
    status: statusOf(query.status),
  };
}

function statusOf(text: string | undefined): number | undefined {
  if (text === undefined || text === '') return undefined;
  if (!/^[1-5]\d\d$/.test(text)) throw invalidField('status', 'must be an HTTP status such as 403');
  return Number(text);
}

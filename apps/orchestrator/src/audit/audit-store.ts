/** Entries of the audit log, read and swept. */
import type { AuditEntry } from '@fuse/contract';
import { sql } from 'kysely';
import type { Queryable } from '../db/db.ts';
import type { AuditTable } from '../db/schema.ts';

export interface AuditFilter {
  /** Undefined: of all tenants and of none. */
  tenantId: string | undefined;
  from?: string | undefined;
  to?: string | undefined;
  /** An id, or a kind. */
  actor?: string | undefined;
  /** An id, alone or the first of several. */
  target?: string | undefined;
  /** Or its beginning; the method may be left out. */
  route?: string | undefined;
  status?: number | undefined;
}

function matching(db: Queryable, filter: AuditFilter) {
  const { tenantId, from, to, actor, target, route, status } = filter;
  let query = db.selectFrom('audit').selectAll();
  if (tenantId !== undefined) query = query.where('tenant_id', '=', tenantId);
  if (from !== undefined) query = query.where(sql<boolean>`at >= ${from}::timestamptz`);
  if (to !== undefined) query = query.where(sql<boolean>`at < ${to}::timestamptz`);
  if (actor !== undefined) query = query.where(sql<boolean>`(actor = ${actor} or actor_kind = ${actor})`);
  if (target !== undefined)
    query = query.where(sql<boolean>`(target = ${target} or starts_with(target, ${`${target}/`}))`);
  if (route !== undefined)
    query = query.where(sql<boolean>`(starts_with(route, ${route}) or starts_with(route, method || ' ' || ${route}))`);
  if (status !== undefined) query = query.where('status', '=', status);
  return query;
}

type Row = Awaited<ReturnType<typeof newestFirst>>[number];

export function newestFirst(db: Queryable, filter: AuditFilter, beforeId: number | undefined, limit: number) {
  const query = matching(db, filter);
  return (beforeId === undefined ? query : query.where('id', '<', beforeId))
    .orderBy('id', 'desc')
    .limit(limit)
    .execute();
}

const EXPORT_PAGE = 1_000;

/** Those that there are by now, a page at a time. */
export async function* oldestFirst(db: Queryable, filter: AuditFilter): AsyncGenerator<AuditEntry> {
  const [last] = await newestFirst(db, filter, undefined, 1);
  let afterId = 0;
  while (last !== undefined && afterId < last.id) {
    const rows = await matching(db, filter)
      .where('id', '>', afterId)
      .where('id', '<=', last.id)
      .orderBy('id')
      .limit(EXPORT_PAGE)
      .execute();
    for (const row of rows) yield toEntry(row);
    afterId = rows.at(-1)?.id ?? last.id;
  }
}

export function toEntry(row: Row): AuditEntry {
  const optional = (name: keyof AuditTable & keyof Row) => (row[name] === null ? {} : { [name]: row[name] });
  return {
    id: String(row.id),
    at: row.at.toISOString(),
    ...optional('tenant_id'),
    actor_kind: row.actor_kind,
    ...optional('actor'),
    method: row.method,
    route: row.route,
    ...optional('target'),
    status: row.status,
    ...optional('code'),
    request_id: row.request_id,
    ...optional('remote'),
  };
}

const SWEEP_BATCH = 5_000;

/** Of those that are older than they are kept. True when there may be more. */
export async function sweepAudit(db: Queryable, keepMs: number): Promise<boolean> {
  const { numAffectedRows = 0n } = await sql`
    delete from audit where id in (
      select id from audit where at < now() - ${keepMs}::float8 * interval '1 millisecond' order by at limit ${SWEEP_BATCH})`.execute(
    db,
  );
  return numAffectedRows >= BigInt(SWEEP_BATCH);
}

/**
 * The order over the events of all environments: (xid, id). A transaction that took its xid earlier may commit later, so what is at or above the oldest
 * transaction under way is not told yet: below it nothing new can appear. On the wire a position is 32 hex digits, 16 for each.
 */
import { sql } from 'kysely';
import type { Queryable } from '../db/db.ts';
import type { EventRow } from '../db/schema.ts';

export interface Position {
  xid: bigint;
  id: bigint;
}

export const START: Position = { xid: 0n, id: 0n };

export const isBefore = (a: Position, b: Position): boolean => a.xid < b.xid || (a.xid === b.xid && a.id < b.id);
export const positionOf = (row: Pick<EventRow, 'xid' | 'id'>): Position => ({
  xid: BigInt(row.xid),
  id: BigInt(row.id),
});

export const formatPosition = ({ xid, id }: Position): string => hex16(xid) + hex16(id);
const hex16 = (value: bigint): string => value.toString(16).padStart(16, '0');

/** Undefined: not one of ours. */
export function parsePosition(text: string): Position | undefined {
  if (!/^[0-9a-f]{32}$/.test(text)) return undefined;
  const position = { xid: BigInt(`0x${text.slice(0, 16)}`), id: BigInt(`0x${text.slice(16)}`) };
  return position.id <= BigInt(Number.MAX_SAFE_INTEGER) ? position : undefined;
}

const settled = sql<boolean>`xid < pg_snapshot_xmin(pg_current_snapshot())`;
const after = ({ xid, id }: Position) => sql<boolean>`(xid, id) > (${String(xid)}::xid8, ${String(id)}::bigint)`;
const upTo = ({ xid, id }: Position) => sql<boolean>`(xid, id) <= (${String(xid)}::xid8, ${String(id)}::bigint)`;

/** In order; `isSettled` false: transactions under way may still put others before these, ask again soon. */
export async function nextInOrder(
  db: Queryable,
  from: Position,
  limit: number,
): Promise<{ rows: EventRow[]; isSettled: boolean }> {
  const found = await db
    .selectFrom('events')
    .selectAll()
    .select(settled.as('settled'))
    .where('subject_kind', '=', 'environment')
    .where(after(from))
    .orderBy('xid')
    .orderBy('id')
    .limit(limit)
    .execute();
  const rows = found.filter((row) => row.settled);
  return { rows, isSettled: rows.length === found.length };
}

/** What was told already, between the two, of one tenant or of all. */
export function toldBetween(
  db: Queryable,
  { from, to, tenantId, limit }: { from: Position; to: Position; tenantId: string | undefined; limit: number },
): Promise<EventRow[]> {
  let query = db
    .selectFrom('events')
    .selectAll()
    .where('subject_kind', '=', 'environment')
    .where(after(from))
    .where(upTo(to));
  if (tenantId !== undefined) query = query.where('tenant_id', '=', tenantId);
  return query.orderBy('xid').orderBy('id').limit(limit).execute();
}

/** The last one that may be told. */
export async function lastInOrder(db: Queryable): Promise<Position> {
  const row = await db
    .selectFrom('events')
    .select(['xid', 'id'])
    .where('subject_kind', '=', 'environment')
    .where(settled)
    .orderBy('xid', 'desc')
    .orderBy('id', 'desc')
    .limit(1)
    .executeTakeFirst();
  return row === undefined ? START : positionOf(row);
}

/** Whether everything after it is still there: events are kept for `keptMs` at least, so one that is known and younger than that has lost nothing behind it. */
export async function isUnbroken(db: Queryable, { xid, id }: Position, keptMs: number): Promise<boolean> {
  if (xid === 0n && id === 0n) return true; // from the first that there is
  const row = await db
    .selectFrom('events')
    .select('id')
    .where('id', '=', Number(id))
    .where('subject_kind', '=', 'environment')
    .where(sql<boolean>`xid = ${String(xid)}::xid8`)
    .where(sql<boolean>`at > now() - ${keptMs}::float8 * interval '1 millisecond'`)
    .executeTakeFirst();
  return row !== undefined;
}

/**
 * Rows of runs: making them and moving them. Every move is a compare-and-set on state, lease and version, with its event, in the
 * caller's transaction. `version` is the fencing token: it grows with every take-over, so that a driver that lost its lease
 * changes nothing any more.
 */
import { type NetworkPolicy, type RunState, runCanBecome } from '@fuse/contract';
import type { Shape } from '@fuse/host-protocol';
import { type InsertQueryBuilder, type RawBuilder, sql, type Updateable, type UpdateQueryBuilder } from 'kysely';
import { channels, inMs, jsonb, now, type Queryable, type Tx } from '../db/db.ts';
import type { Database, RunRow, RunsTable } from '../db/schema.ts';
import type { Sealer } from '../secrets/sealer.ts';
import type { PreparedRequest } from './request.ts';
import type { RunFailure } from './run.ts';
import { sealRequest } from './run-secrets.ts';

/** What a driver holds: it may move this run until somebody else has taken it over. */
export interface RunHold {
  runId: string;
  owner: string;
  version: number;
}

/** Somebody else drives this run now, or it has ended. Stop, and leave everything as it is. */
export class HoldLost extends Error {
  override readonly name = 'HoldLost';
  constructor(runId: string) {
    super(`run ${runId} is not this driver's any more`);
  }
}

export const LEASE_MS = 15_000;

export interface NewRun {
  id: string;
  tenantId: string;
  image: string;
  shape: Shape;
  timeoutMs: number;
  queueTimeoutMs: number;
  labels: Record<string, string>;
  network: NetworkPolicy;
  request: PreparedRequest;
  /** From the arrival of the request to this insert. */
  admitMs: number;
}

export interface Admittance {
  environmentUid: string;
  owner: string;
  leaseMs: number;
}

/** `queued`, or with room already reserved `starting`. */
export async function insertRun(
  tx: Tx,
  sealer: Sealer,
  run: NewRun,
  admitted: Admittance | undefined,
): Promise<RunRow> {
  const state = admitted === undefined ? 'queued' : 'starting';
  const timings = { admit_ms: roundMs(run.admitMs), ...(admitted === undefined ? {} : { queue_ms: 0 }) };
  const made = tx
    .insertInto('runs')
    .values({
      id: run.id,
      tenant_id: run.tenantId,
      state,
      image: run.image,
      ...run.shape,
      timeout_ms: run.timeoutMs,
      labels: jsonb(run.labels),
      network: jsonb(run.network),
      request: jsonb<unknown>(sealRequest(sealer, run.request, run.id)),
      queue_deadline: sql<Date>`clock_timestamp() + ${run.queueTimeoutMs}::float8 * interval '1 millisecond'`,
      timings: jsonb<Record<string, number>>(timings),
      environment_uid: admitted?.environmentUid ?? null,
      lease_owner: admitted?.owner ?? null,
      lease_until: admitted === undefined ? null : inMs(admitted.leaseMs),
    })
    .returningAll();
  const row = await withEvents(tx, made, admitted === undefined ? [{ state }] : [{ state: 'queued' }, { state }]);
  if (row === undefined) throw new Error(`run ${run.id} was not inserted`);
  return row;
}

/** A queued run, locked by this transaction, gets the room that was reserved for it. */
export async function admitQueuedRun(tx: Tx, runId: string, admitted: Admittance): Promise<RunRow> {
  const admitting = tx
    .updateTable('runs')
    .set({
      ...moved('queued', 'starting'),
      environment_uid: admitted.environmentUid,
      lease_owner: admitted.owner,
      lease_until: inMs(admitted.leaseMs),
      version: sql<number>`version + 1`,
    })
    .where('id', '=', runId)
    .where('state', '=', 'queued')
    .returningAll();
  const row = await withEvents(tx, admitting, [{ state: 'starting' }]);
  if (row === undefined) throw new HoldLost(runId);
  return row;
}

export interface Move {
  from: RunState;
  to: RunState;
  set?: Updateable<RunsTable>;
  failure?: RunFailure | undefined;
}

/** By whoever holds the run. */
export async function moveRun(tx: Tx, hold: RunHold, { from, to, set, failure }: Move): Promise<RunRow> {
  const moving = tx
    .updateTable('runs')
    .set({ ...moved(from, to), ...set, ...failed(failure) })
    .where('id', '=', hold.runId)
    .where('state', '=', from)
    .where('lease_owner', '=', hold.owner)
    .where('version', '=', hold.version)
    .returningAll();
  const row = await withEvents(tx, moving, [stateEvent(to, failure)]);
  if (row === undefined) throw new HoldLost(hold.runId);
  return row;
}

/** Ends a queued run, which nobody holds; false when it is queued no more. */
export async function endQueuedRun(
  tx: Tx,
  runId: string,
  to: 'failed' | 'cancelled',
  retentionMs: number,
  failure?: RunFailure,
): Promise<boolean> {
  const ending = tx
    .updateTable('runs')
    .set({ ...moved('queued', to), ...ended(retentionMs), ...failed(failure) })
    .where('id', '=', runId)
    .where('state', '=', 'queued')
    .returningAll();
  return (await withEvents(tx, ending, [stateEvent(to, failure)])) !== undefined;
}

/** Whoever drives it: its host is no more. The row is locked. */
export async function endLostRun(
  tx: Tx,
  run: Pick<RunRow, 'id' | 'state'>,
  { retentionMs, message }: { retentionMs: number; message: string },
): Promise<void> {
  const failure = { code: 'host_lost', message } as const;
  const ending = tx
    .updateTable('runs')
    .set({
      ...moved(run.state, 'failed'),
      ...ended(retentionMs),
      ...failed(failure),
      version: sql<number>`version + 1`,
    })
    .where('id', '=', run.id)
    .where('state', '=', run.state)
    .returningAll();
  if ((await withEvents(tx, ending, [stateEvent('failed', failure)])) === undefined)
    throw new Error(`run ${run.id} changed though it was locked`);
}

/** What every terminal row has. */
export function ended(retentionMs: number): Updateable<RunsTable> {
  return { finished_at: now, expires_at: inMs(retentionMs), lease_owner: null, lease_until: null };
}

const phaseOf = { queued: 'queue_ms', starting: 'start_ms', running: 'run_ms', saving: 'save_ms' } as const;

function moved(from: RunState, to: RunState): Updateable<RunsTable> {
  if (!runCanBecome(from, to)) throw new Error(`a run never goes from ${from} to ${to}`);
  const phase = from in phaseOf ? phaseOf[from as keyof typeof phaseOf] : undefined; // `in` has just shown it
  return {
    state: to,
    state_since: clockTime,
    updated_at: now,
    ...(phase === undefined ? {} : { timings: timingsWith(phase) }),
  };
}

/** Not now(): that is when the transaction began. */
const clockTime = sql<Date>`clock_timestamp()`;
const timingsWith = (phase: string): RawBuilder<Record<string, number>> =>
  sql`timings || jsonb_build_object(${phase}::text, round(extract(epoch from clock_timestamp() - state_since) * 1000, 1))`;

const failed = (failure: RunFailure | undefined): Updateable<RunsTable> =>
  failure === undefined ? {} : { error_code: failure.code, error_message: failure.message };

/** The data of one event. */
interface StateEvent {
  state: RunState;
  error?: RunFailure;
}

const stateEvent = (state: RunState, error: RunFailure | undefined): StateEvent => ({
  state,
  ...(error === undefined ? {} : { error }),
});

type ChangeOfRuns = InsertQueryBuilder<Database, 'runs', RunRow> | UpdateQueryBuilder<Database, 'runs', 'runs', RunRow>;

/**
 * The change, its events in order and their announcement (as events.ts does it) in one round trip. Undefined when no row was changed: then
 * there is no event either.
 */
async function withEvents(tx: Tx, change: ChangeOfRuns, events: StateEvent[]): Promise<RunRow | undefined> {
  const logged = sql<{ id: number }>`(
    insert into events (subject_kind, subject_id, kind, data)
    select 'run', changed.id, 'state', each.data
    from changed, jsonb_array_elements(${jsonb(events)}) with ordinality as each (data, place) order by each.place
    returning id)`;
  const row = await tx
    .with('changed', () => change)
    .with('logged', () => logged)
    .selectFrom('changed')
    .selectAll()
    .select(sql`pg_notify(${channels.events}, 'run:' || id)`.as('announced'))
    .executeTakeFirst();
  if (row === undefined) return undefined;
  const { announced: _, ...run } = row;
  return run;
}

const roundMs = (ms: number): number => Math.round(ms * 10) / 10;

/** The row as it is now; undefined when somebody else holds it, or it has ended. */
export function findHeldRun(query: Queryable, hold: RunHold): Promise<RunRow | undefined> {
  return query
    .selectFrom('runs')
    .selectAll()
    .where('id', '=', hold.runId)
    .where('lease_owner', '=', hold.owner)
    .where('version', '=', hold.version)
    .executeTakeFirst();
}

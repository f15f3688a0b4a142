/** The rows of environments. Every change of state is a compare-and-set with its event in one transaction. */

import { randomUUID } from 'node:crypto';
import {
  canBecome,
  type EnvironmentSpec,
  type EnvironmentState,
  type Healthcheck,
  type NetworkPolicy,
  type PlacementReport,
} from '@fuse/contract';
import { type RawBuilder, sql, type Updateable } from 'kysely';
import { channels, inMs, jsonb, notify, now, type Queryable, type Tx } from '../db/db.ts';
import type { EnvironmentRow, EnvironmentsTable, Exposed } from '../db/schema.ts';
import { type NewEvent, recordEvents } from '../events/events.ts';
import type { GpuHold } from '../scheduling/gpus.ts';
import type { Usage } from '../scheduling/schedule.ts';
import type { Sealer } from '../secrets/sealer.ts';
import { isMetered, settleUse } from '../usage/metering.ts';
import { type EffectiveSpec, isGone, type StateEventData } from './environment.ts';
import { type PlannedStartup, sealEnv, sealStartup } from './environment-secrets.ts';
import { newToken } from './new-token.ts';

/** What happens to it by itself; absent: the column's default. */
export type Lifetime = Partial<
  Pick<EnvironmentRow, 'idle_action' | 'auto_resume' | 'checkpoint_interval_seconds' | 'checkpoint_keep'>
>;

/** The columns of what was given. */
export function lifetimeOf(request: { [Column in keyof Lifetime]: Lifetime[Column] | undefined }): Lifetime {
  const { idle_action, auto_resume, checkpoint_interval_seconds, checkpoint_keep } = request;
  return {
    ...(idle_action === undefined ? {} : { idle_action }),
    ...(auto_resume === undefined ? {} : { auto_resume }),
    ...(checkpoint_interval_seconds === undefined ? {} : { checkpoint_interval_seconds }),
    ...(checkpoint_keep === undefined ? {} : { checkpoint_keep }),
  };
}

/** What is done in it before it runs, what watches it then, and which of its ports are told. */
export interface Interior {
  startup?: PlannedStartup | null;
  healthcheck?: Healthcheck | null | undefined;
  expose?: Exposed[] | null | undefined;
  desktop?: { width: number; height: number } | null | undefined;
  gatewayUrl?: string | null | undefined;
}

export interface NewEnvironment {
  uid: string | undefined;
  id: string;
  tenantId: string;
  taskId: string;
  vmId: string;
  /** Null: it waits for one, for `queueTimeoutMs`. */
  hostId: string | null;
  /** Of that host's. */
  gpus?: GpuHold | undefined;
  placement: RawBuilder<PlacementReport>;
  queueTimeoutMs?: number;
  spec: EnvironmentSpec;
  effective: EffectiveSpec;
  env: Record<string, string>;
  labels: Record<string, string>;
  network: NetworkPolicy;
  lifetime: Lifetime;
  interior: Interior;
  seed: { snapshotId: string; fallback: 'disk' | undefined } | undefined;
  runId: string | undefined;
  /** The API key that asks for it. */
  keyId: string | undefined;
  /** Of whoever drives its start, or waits with it. */
  lease?: { owner: string; ms: number };
}

/** Inserts it as `provisioning`. A unique violation of `environments_live_id`: the id is taken by a live one. */
export async function insertEnvironment(tx: Tx, sealer: Sealer, environment: NewEnvironment): Promise<EnvironmentRow> {
  const { effective, queueTimeoutMs, lease, uid = randomUUID() } = environment;
  const { startup, healthcheck, expose, desktop, gatewayUrl } = environment.interior;
  const row = await tx
    .insertInto('environments')
    .values({
      uid,
      id: environment.id,
      tenant_id: environment.tenantId,
      task_id: environment.taskId,
      vm_id: environment.vmId,
      host_id: environment.hostId,
      gpus: environment.gpus === undefined ? null : jsonb(environment.gpus),
      state: 'provisioning',
      image: effective.image,
      spec: jsonb(environment.spec),
      cpus: effective.cpus,
      ram_mb: effective.ram_mb,
      storage_gb: effective.storage_gb,
      env: jsonb(sealEnv(sealer, environment.env, uid)),
      labels: jsonb(environment.labels),
      network: jsonb(environment.network),
      ...environment.lifetime,
      ...(startup ? { startup: jsonb(sealStartup(sealer, startup, uid)) } : {}),
      ...(healthcheck ? { healthcheck: jsonb(healthcheck) } : {}),
      ...(expose ? { expose: jsonb(expose) } : {}),
      ...(desktop ? { desktop: jsonb(desktop) } : {}),
      gateway_url: gatewayUrl ?? null,
      seed_snapshot_id: environment.seed?.snapshotId ?? null,
      fallback: environment.seed?.fallback ?? null,
      run_id: environment.runId ?? null,
      ...(environment.runId === undefined ? newToken(sealer, uid) : {}),
      key_id: environment.keyId ?? null,
      placement: environment.placement,
      // Its lifetime begins with its place.
      ...(queueTimeoutMs === undefined
        ? { expires_at: inMs(effective.max_runtime_seconds * 1_000) }
        : { queue_deadline: inMs(queueTimeoutMs) }),
      ...(lease === undefined ? {} : { lease_owner: lease.owner, lease_until: inMs(lease.ms) }),
    })
    .returningAll()
    .executeTakeFirstOrThrow();
  await recordState(tx, row);
  return row;
}

/** What becomes true together with a state. */
export interface Change {
  /** Null: what was wrong is so no more. */
  error?: string | null | undefined;
  /** Of whoever drives what begins with it. */
  lease?: { owner: string; ms: number };
  /** Other columns, set with the state. */
  columns?: Omit<Updateable<EnvironmentsTable>, 'uid' | 'state' | 'version'>;
  /** Told with the event: it is now as of this snapshot. */
  restoredFrom?: string;
  /** Told before the event. */
  before?: readonly NewEvent[];
}

/**
 * `row` becomes `to` if nobody changed it since it was read; undefined when somebody did. Its lease ends with the transition, unless the change
 * has a new one. A string is the change's error.
 */
export async function transition(
  tx: Tx,
  row: Pick<EnvironmentRow, 'uid' | 'state' | 'version'>,
  to: EnvironmentState,
  change: Change | string = {},
): Promise<EnvironmentRow | undefined> {
  if (!canBecome(row.state, to)) throw new Error(`environment ${row.uid}: ${row.state} cannot become ${to}`);
  const {
    error,
    lease,
    columns = {},
    restoredFrom,
    before,
  }: Change = typeof change === 'string' ? { error: change } : change;
  if (isMetered(row.state) && !isMetered(to)) await settleUse(tx, row);
  const changed = await tx
    .updateTable('environments')
    .set({
      state: to,
      version: sql<number>`version + 1`,
      updated_at: now,
      lease_owner: lease?.owner ?? null,
      lease_until: lease === undefined ? null : inMs(lease.ms),
      startup: null, // whatever it becomes, its start is over
      queue_deadline: null,
      ...(isMetered(row.state) === isMetered(to) ? {} : { metered_at: isMetered(to) ? now : null }),
      ...(error === undefined ? {} : { error }),
      ...(isGone(to) ? { gone_at: now, token_hash: null, token_sealed: null } : {}),
      ...columns,
    })
    .where('uid', '=', row.uid)
    .where('version', '=', row.version)
    .where('state', '=', row.state)
    .returningAll()
    .executeTakeFirst();
  if (changed === undefined) return undefined;
  await recordState(tx, changed, { restoredFrom, before });
  if (isGone(to) || to === 'paused') await notify(tx, channels.capacity);
  return changed;
}

async function recordState(
  tx: Tx,
  row: EnvironmentRow,
  { restoredFrom, before = [] }: { restoredFrom?: string | undefined; before?: readonly NewEvent[] | undefined } = {},
): Promise<void> {
  const data: StateEventData = {
    state: row.state,
    vm_id: row.id,
    ...(row.url === '' ? {} : { url: row.url }),
    ...(row.error === null ? {} : { error: row.error }),
    ...(restoredFrom === undefined ? {} : { restored_from: restoredFrom }),
  };
  const subject = { subjectKind: 'environment', subjectId: row.uid, tenantId: row.tenant_id } as const;
  await recordEvents(tx, [...before, { ...subject, kind: 'state', data: { ...data } }]);
}

/** States in which somebody drives the row to another one, under its lease. */
const DRIVEN = ['provisioning', 'pausing', 'resuming'] as const;

/** True when the lease is `owner`'s now: it was already, or the former one's time is up. */
export async function takeLease(db: Queryable, uid: string, owner: string, ms: number): Promise<boolean> {
  const row = await db
    .updateTable('environments')
    .set({ lease_owner: owner, lease_until: inMs(ms) })
    .where('uid', '=', uid)
    .where('state', 'in', DRIVEN)
    .where((eb) => eb.or([eb('lease_owner', '=', owner), eb('lease_until', '<', now), eb('lease_until', 'is', null)]))
    .returning('uid')
    .executeTakeFirst();
  return row !== undefined;
}

/**
 * To give a start up: as `takeLease`, from whoever holds it, whose compare-and-sets fail from now on. Whoever comes after us gives it up too, for the same
 * reason. Undefined when the row changed since it was read.
 */
export function claimStart(
  db: Queryable,
  { uid, version }: Pick<EnvironmentRow, 'uid' | 'version'>,
  { owner, ms, reason }: { owner: string; ms: number; reason: string },
): Promise<EnvironmentRow | undefined> {
  return db
    .updateTable('environments')
    .set({
      version: sql<number>`version + 1`,
      lease_owner: owner,
      lease_until: inMs(ms),
      startup: null,
      error: reason,
    })
    .where('uid', '=', uid)
    .where('version', '=', version)
    .where('state', '=', 'provisioning')
    .returningAll()
    .executeTakeFirst();
}

/** Anybody may take it at once. */
export async function releaseLease(db: Queryable, uid: string, owner: string): Promise<void> {
  await db
    .updateTable('environments')
    .set({ lease_until: now })
    .where('uid', '=', uid)
    .where('state', 'in', DRIVEN)
    .where('lease_owner', '=', owner)
    .execute();
}

export function environmentByUid(db: Queryable, uid: string): Promise<EnvironmentRow | undefined> {
  return db.selectFrom('environments').selectAll().where('uid', '=', uid).executeTakeFirst();
}

const live = sql<boolean>`state not in ('destroyed', 'failed')`;

/** The live one: there is at most one. */
export function environmentById(db: Queryable, tenantId: string, id: string): Promise<EnvironmentRow | undefined> {
  return db
    .selectFrom('environments')
    .selectAll()
    .where('id', '=', id)
    .where('tenant_id', '=', tenantId)
    .where(live)
    .executeTakeFirst();
}

/** The one of this id that went last, while its row is kept. */
export function lastGone(db: Queryable, tenantId: string, id: string): Promise<EnvironmentRow | undefined> {
  return db
    .selectFrom('environments')
    .selectAll()
    .where('tenant_id', '=', tenantId)
    .where('id', '=', id)
    .where('gone_at', 'is not', null)
    .orderBy('gone_at', 'desc')
    .limit(1)
    .executeTakeFirst();
}

export interface EnvironmentFilter {
  /** Undefined: of all tenants. */
  tenantId: string | undefined;
  taskId?: string | undefined;
  state?: string | undefined;
  hostId?: string | undefined;
  /** All of them. */
  labels?: Record<string, string>;
  after?: { id: string; tenantId: string | undefined } | undefined;
  limit: number;
}

/** Live ones by tenant and id, one more than `limit` when there are more. */
export function listEnvironments(db: Queryable, filter: EnvironmentFilter): Promise<EnvironmentRow[]> {
  const { tenantId, taskId, state, hostId, labels = {}, after, limit } = filter;
  let query = db.selectFrom('environments').selectAll().where(live);
  if (tenantId !== undefined) query = query.where('tenant_id', '=', tenantId);
  // A task's id is given back when its environment begins to go.
  if (taskId !== undefined) query = query.where('task_id', '=', taskId).where('state', '!=', 'destroying');
  if (state !== undefined) query = query.where(sql<string>`state`, '=', state);
  if (hostId !== undefined) query = query.where('host_id', '=', hostId);
  if (Object.keys(labels).length > 0) query = query.where(sql<boolean>`labels @> ${jsonb(labels)}`);
  if (after !== undefined)
    query = query.where(sql<boolean>`(tenant_id, id) > (${tenantId ?? after.tenantId ?? ''}, ${after.id})`);
  return query
    .orderBy('tenant_id')
    .orderBy('id')
    .limit(limit + 1)
    .execute();
}

/** Reserved on each host: a sum, never a counter. A paused one has given back all but its disk. */
export async function usedByHost(db: Queryable): Promise<Map<string, Usage>> {
  const { rows } = await sql<Usage & { host_id: string }>`
    select host_id, sum(storage_gb)::int as storage_gb,
      coalesce(sum(cpus) filter (where not is_paused), 0)::int as cpus,
      coalesce(sum(ram_mb) filter (where not is_paused), 0)::int as ram_mb,
      count(*) filter (where not is_paused)::int as vm_count,
      coalesce(jsonb_agg(gpus) filter (where gpus is not null), '[]') as gpus
    from reservations group by host_id`.execute(db);
  return new Map(rows.map(({ host_id, ...used }) => [host_id, used]));
}

/** Live ones on this host, paused or not. */
export async function countOnHost(db: Queryable, hostId: string): Promise<number> {
  const { count } = await db
    .selectFrom('environments')
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .where('host_id', '=', hostId)
    .where(live)
    .executeTakeFirstOrThrow();
  return count;
}

/** Longer without activity than it may be. Of what runs: the clock stands still while it is paused. */
export const isIdle = sql<boolean>`(environments.spec ->> 'idle_timeout_seconds')::bigint > 0 and environments.last_activity_at
  < now() - (environments.spec ->> 'idle_timeout_seconds')::bigint * interval '1 second'`;

/** As `touch`, of one that runs: from now on it is not idle. False when it does not run any more. */
export async function touchRunning(db: Queryable, uid: string): Promise<boolean> {
  const row = await db
    .updateTable('environments')
    .set({ last_activity_at: now })
    .where('uid', '=', uid)
    .where('state', '=', 'running')
    .returning('uid')
    .executeTakeFirst();
  return row !== undefined;
}

/** Stamped by what counts as activity: idle time begins here. */
export async function touch(db: Queryable, uid: string): Promise<void> {
  await db.updateTable('environments').set({ last_activity_at: now }).where('uid', '=', uid).execute();
}

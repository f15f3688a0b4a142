/** The rows of environments. Every change of state is a compare-and-set with its event in one transaction. */

import type { EnvironmentSpec } from '@fuse/contract';
import { canBecome, type EnvironmentState } from '@fuse/contract';
import { sql } from 'kysely';
import { channels, inMs, jsonb, notify, now, type Queryable, type Tx } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { recordEvent } from '../events/events.ts';
import type { Capacity } from '../scheduling/schedule.ts';
import { type EffectiveSpec, isGone, type StateEventData } from './environment.ts';

export interface NewEnvironment {
  uid: string | undefined;
  id: string;
  tenantId: string;
  taskId: string;
  vmId: string;
  hostId: string;
  spec: EnvironmentSpec;
  effective: EffectiveSpec;
  env: Record<string, string>;
  runId: string | undefined;
  leaseOwner: string;
  leaseMs: number;
}

/** Inserts it as `provisioning`. A unique violation of `environments_live_id`: the id is taken by a live one. */
export async function insertEnvironment(tx: Tx, environment: NewEnvironment): Promise<EnvironmentRow> {
  const { effective } = environment;
  const row = await tx
    .insertInto('environments')
    .values({
      ...(environment.uid === undefined ? {} : { uid: environment.uid }),
      id: environment.id,
      tenant_id: environment.tenantId,
      task_id: environment.taskId,
      vm_id: environment.vmId,
      host_id: environment.hostId,
      state: 'provisioning',
      image: effective.image,
      spec: jsonb(environment.spec),
      cpus: effective.cpus,
      ram_mb: effective.ram_mb,
      storage_gb: effective.storage_gb,
      env: jsonb(environment.env),
      run_id: environment.runId ?? null,
      expires_at: inMs(effective.max_runtime_seconds * 1_000),
      lease_owner: environment.leaseOwner,
      lease_until: inMs(environment.leaseMs),
    })
    .returningAll()
    .executeTakeFirstOrThrow();
  await recordState(tx, row);
  return row;
}

/**
 * `row` becomes `to` if nobody changed it since it was read; undefined when somebody did. Its lease ends with the transition.
 */
export async function transition(
  tx: Tx,
  row: Pick<EnvironmentRow, 'uid' | 'state' | 'version'>,
  to: EnvironmentState,
  error?: string,
): Promise<EnvironmentRow | undefined> {
  if (!canBecome(row.state, to)) throw new Error(`environment ${row.uid}: ${row.state} cannot become ${to}`);
  const changed = await tx
    .updateTable('environments')
    .set({
      state: to,
      version: sql<number>`version + 1`,
      updated_at: now,
      lease_owner: null,
      lease_until: null,
      ...(error === undefined ? {} : { error }),
      ...(isGone(to) ? { gone_at: now } : {}),
    })
    .where('uid', '=', row.uid)
    .where('version', '=', row.version)
    .where('state', '=', row.state)
    .returningAll()
    .executeTakeFirst();
  if (changed === undefined) return undefined;
  await recordState(tx, changed);
  if (isGone(to)) await notify(tx, channels.capacity);
  return changed;
}

async function recordState(tx: Tx, row: EnvironmentRow): Promise<void> {
  const data: StateEventData = {
    state: row.state,
    vm_id: row.id,
    ...(row.url === '' ? {} : { url: row.url }),
    ...(row.error === null ? {} : { error: row.error }),
  };
  await recordEvent(tx, { subjectKind: 'environment', subjectId: row.uid, kind: 'state', data: { ...data } });
}

/** True when the lease is `owner`'s now: it was already, or the former one's time is up. */
export async function takeLease(db: Queryable, uid: string, owner: string, ms: number): Promise<boolean> {
  const row = await db
    .updateTable('environments')
    .set({ lease_owner: owner, lease_until: inMs(ms) })
    .where('uid', '=', uid)
    .where('state', '=', 'provisioning')
    .where((eb) => eb.or([eb('lease_owner', '=', owner), eb('lease_until', '<', now), eb('lease_until', 'is', null)]))
    .returning('uid')
    .executeTakeFirst();
  return row !== undefined;
}

/** As `takeLease`, from whoever holds it: their compare-and-sets fail from now on. Undefined when the row changed since it was read. */
export function claimStart(
  db: Queryable,
  { uid, version }: Pick<EnvironmentRow, 'uid' | 'version'>,
  owner: string,
  ms: number,
): Promise<EnvironmentRow | undefined> {
  return db
    .updateTable('environments')
    .set({ version: sql<number>`version + 1`, lease_owner: owner, lease_until: inMs(ms) })
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
    .where('state', '=', 'provisioning')
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

export interface EnvironmentFilter {
  tenantId: string;
  taskId?: string | undefined;
  state?: string | undefined;
  hostId?: string | undefined;
  afterId?: string | undefined;
  limit: number;
}

/** Live ones by id, one more than `limit` when there are more. */
export function listEnvironments(db: Queryable, filter: EnvironmentFilter): Promise<EnvironmentRow[]> {
  const { tenantId, taskId, state, hostId, afterId, limit } = filter;
  let query = db.selectFrom('environments').selectAll().where('tenant_id', '=', tenantId).where(live);
  // A task's id is given back when its environment begins to go.
  if (taskId !== undefined) query = query.where('task_id', '=', taskId).where('state', '!=', 'destroying');
  if (state !== undefined) query = query.where(sql<string>`state`, '=', state);
  if (hostId !== undefined) query = query.where('host_id', '=', hostId);
  if (afterId !== undefined) query = query.where('id', '>', afterId);
  return query
    .orderBy('id')
    .limit(limit + 1)
    .execute();
}

/** Reserved on each host: the sum over live environments. */
export async function usedByHost(db: Queryable): Promise<Map<string, Capacity>> {
  const rows = await db
    .selectFrom('environments')
    .select((eb) => [
      'host_id',
      eb.fn.sum<number>('cpus').as('cpus'),
      eb.fn.sum<number>('ram_mb').as('ram_mb'),
      eb.fn.sum<number>('storage_gb').as('storage_gb'),
      eb.fn.countAll<number>().as('vm_count'),
    ])
    .where(live)
    .where('host_id', 'is not', null)
    .groupBy('host_id')
    .execute();
  return new Map(rows.map(({ host_id, ...used }) => [host_id ?? '', used]));
}

/** Stamped by what counts as activity: idle time begins here. */
export async function touch(db: Queryable, uid: string): Promise<void> {
  await db.updateTable('environments').set({ last_activity_at: now }).where('uid', '=', uid).execute();
}

/** Queries for what is due. Each names environments that somebody else may change meanwhile: acting on them is a compare-and-set. */
import { sql } from 'kysely';
import type { Queryable } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { isIdle } from '../environments/environment-store.ts';

const BATCH = 100;

export function destroying(db: Queryable): Promise<EnvironmentRow[]> {
  return db
    .selectFrom('environments')
    .selectAll()
    .where('state', '=', 'destroying')
    .orderBy('updated_at')
    .limit(BATCH)
    .execute();
}

/** Provisioning, and whoever drove that is gone. Not those of runs: whoever takes the run over goes on with them. */
export function abandonedStarts(db: Queryable): Promise<EnvironmentRow[]> {
  return db
    .selectFrom('environments')
    .selectAll()
    .where('state', '=', 'provisioning')
    .where(sql<boolean>`coalesce(lease_until, created_at) < now()`)
    .where(sql<boolean>`not exists (select from runs where runs.id = environments.run_id and runs.state = 'starting')`)
    .orderBy('created_at')
    .limit(BATCH)
    .execute();
}

/** Pausing or resuming, and whoever drove that is gone. A restore in place is its own affair. */
export function abandonedMoves(db: Queryable): Promise<Pick<EnvironmentRow, 'uid'>[]> {
  return db
    .selectFrom('environments')
    .select('uid')
    .where('state', 'in', ['pausing', 'resuming'])
    .where('restore_id', 'is', null)
    .where(sql<boolean>`coalesce(lease_until, updated_at) < now()`)
    .orderBy('updated_at')
    .limit(BATCH)
    .execute();
}

/** To be paused, not destroyed. Never those of runs. */
export function idle(db: Queryable): Promise<Pick<EnvironmentRow, 'uid'>[]> {
  return db
    .selectFrom('environments')
    .select('uid')
    .where('state', '=', 'running')
    .where('idle_action', '=', 'pause')
    .where('run_id', 'is', null)
    .where(isIdle)
    .orderBy('last_activity_at')
    .limit(BATCH)
    .execute();
}

export interface Expired {
  uid: string;
  reason: string;
}

/** Older than their ceiling (paused or not), idle for too long, or of a run that has ended and left them behind. */
export async function expired(db: Queryable): Promise<Expired[]> {
  const { rows } = await sql<Expired>`
    select uid, 'max_runtime_seconds: runtime ' || extract(epoch from now() - created_at)::int || ' s exceeded the ceiling' as reason
      from environments where state in ('running', 'draining', 'pausing', 'paused', 'resuming') and expires_at < now()
    union all
    select uid, 'max_runtime_seconds: its startup did not end in ' || extract(epoch from now() - created_at)::int || ' s'
      from environments where state = 'provisioning' and startup is not null and expires_at < now()
    union all
    select uid, 'idle_timeout_seconds: no exec or attach for ' || (spec ->> 'idle_timeout_seconds') || ' s'
      from environments where state = 'running' and idle_action = 'destroy' and ${isIdle}
    union all
    select e.uid, 'its run has ended' from environments e left join runs r on r.id = e.run_id
      where e.run_id is not null and e.state not in ('destroying', 'destroyed', 'failed')
      and (r.id is null or r.finished_at < now() - interval '30 seconds')
    limit ${BATCH}`.execute(db);
  return rows;
}

/**
 * Should have a VM on this host. Those of runs that have not ended are left to their drivers, who learn of a VM's death by themselves and
 * save what it left on its host first.
 */
export function expectedOnHost(db: Queryable, hostId: string): Promise<EnvironmentRow[]> {
  return db
    .selectFrom('environments')
    .selectAll()
    .where('host_id', '=', hostId)
    .where('state', 'in', ['running', 'draining', 'pausing', 'paused', 'resuming'])
    .where(sql<boolean>`not exists (select from runs where runs.id = environments.run_id and runs.finished_at is null)`)
    .execute();
}

export function environmentByVm(db: Queryable, vmId: string): Promise<EnvironmentRow | undefined> {
  return db.selectFrom('environments').selectAll().where('vm_id', '=', vmId).executeTakeFirst();
}

/** Rows and events of what has been gone for longer than they are kept; while its execs can be read an environment stays. Returns how many rows went. */
export async function prune(db: Queryable, keepMs: number): Promise<number> {
  const old = sql`now() - ${keepMs}::float8 * interval '1 millisecond'`;
  const events = await sql`
    delete from events where id in (
      select v.id from events v where v.at < ${old} and (v.subject_kind in ('host', 'snapshot') or (v.subject_kind = 'environment'
        and not exists (select 1 from environments e where e.uid::text = v.subject_id and (e.gone_at is null or e.gone_at >= ${old}))))
      limit 5000)`.execute(db);
  const environments = await sql`
    delete from environments where uid in (select uid from environments where gone_at < ${old} and archive_key is null limit 1000)`.execute(
    db,
  );
  return Number(events.numAffectedRows ?? 0) + Number(environments.numAffectedRows ?? 0);
}

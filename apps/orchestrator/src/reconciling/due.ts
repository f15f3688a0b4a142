/** Queries for what is due. Each names environments that somebody else may change meanwhile: acting on them is a compare-and-set. */
import { sql } from 'kysely';
import type { Queryable } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { isIdle } from '../environments/environment-store.ts';
import { isDue } from '../environments/expire-environment.ts';

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

/** Provisioning, and whoever drove that is gone. Not those of runs: whoever takes the run over goes on with them; nor those that wait for room still. */
export function abandonedStarts(db: Queryable): Promise<EnvironmentRow[]> {
  return db
    .selectFrom('environments')
    .selectAll()
    .where('state', '=', 'provisioning')
    .where('queue_deadline', 'is', null)
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

/** To be destroyed, if they still are due then. */
/** `cause`: of its lifetime, of idleness, or of its run's end. */
export function dueToEnd(db: Queryable): Promise<{ uid: string; cause: 'overdue' | 'run' | 'idle' }[]> {
  return db
    .selectFrom('environments')
    .select('uid')
    .select(
      sql<
        'overdue' | 'run' | 'idle'
      >`case when expires_at < now() then 'overdue' when run_id is not null then 'run' else 'idle' end`.as('cause'),
    )
    .where('state', 'not in', ['destroying', 'destroyed', 'failed'])
    .where(isDue)
    .limit(BATCH)
    .execute();
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

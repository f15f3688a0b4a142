/** What is due of checkpoints, in SQL: which environments want one, which of those taken are no longer wanted. */
import { sql } from 'kysely';
import { now, type Queryable } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';

const BATCH = 100;

/** Running for an interval since the last one was begun (or since it was made), and none is being taken. */
const isDue = sql<boolean>`environments.state = 'running' and environments.checkpoint_interval_seconds > 0
  and coalesce(environments.checkpointed_at, environments.created_at) + environments.checkpoint_interval_seconds * interval '1 second' <= now()
  and not exists (select from snapshots s where s.environment_uid = environments.uid and s.is_checkpoint and s.state = 'creating')`;

export function dueCheckpoints(db: Queryable): Promise<Pick<EnvironmentRow, 'uid'>[]> {
  return db
    .selectFrom('environments')
    .select('uid')
    .where(isDue)
    .orderBy(sql`coalesce(checkpointed_at, created_at)`)
    .limit(BATCH)
    .execute();
}

/** Undefined: another process has begun it. From now on the next one is an interval away, whatever becomes of this one. */
export function claimCheckpoint(db: Queryable, uid: string): Promise<EnvironmentRow | undefined> {
  return db
    .updateTable('environments')
    .set({ checkpointed_at: now })
    .where('uid', '=', uid)
    .where(isDue)
    .returningAll()
    .executeTakeFirst();
}

/**
 * Ends the time of those of live environments that are older than the newest `checkpoint_keep`, whole ones and failed ones counted apart. They are
 * collected like every snapshot that is over its time: not while something starts from them.
 */
export async function retireCheckpoints(db: Queryable): Promise<void> {
  await sql`
    update snapshots set retention_until = now() where retention_until is null and id in (
      select id from (
        select s.id, e.checkpoint_keep,
          row_number() over (partition by s.environment_uid, s.state order by s.created_at desc, s.id desc) as rank
        from snapshots s join environments e on e.uid = s.environment_uid
        where s.is_checkpoint and s.state in ('ready', 'error') and s.retention_until is null and e.gone_at is null
      ) ranked where rank > checkpoint_keep)`.execute(db);
}

/** Those that outlive their environment are kept for `keepMs` after it. */
export async function keepCheckpointsOfGone(db: Queryable, keepMs: number): Promise<void> {
  await sql`
    update snapshots set retention_until = e.gone_at + ${keepMs}::float8 * interval '1 millisecond'
    from environments e where e.uid = snapshots.environment_uid and snapshots.is_checkpoint
      and snapshots.retention_until is null and e.gone_at is not null`.execute(db);
}

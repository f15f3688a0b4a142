/**
 * What ends by itself. Whether it is due is asked again of the row itself, held, in the transaction that makes it `destroying`: what was renewed or used since it was
 * found lives on, and what is found here can be neither any more.
 */
import { type RawBuilder, sql } from 'kysely';
import type { EnvironmentContext } from './environment-context.ts';
import { environmentByUid, isIdle, transition } from './environment-store.ts';

/** Of a run that has ended: its driver gets so long to clean up by itself. */
const RUN_GRACE = sql`interval '30 seconds'`;

/**
 * Each with its reason. A lifetime ends one that is paused or draining too; idleness only one that runs. A start that nobody is to go on with is ended by whoever
 * waits for it.
 */
const causes: { due: RawBuilder<boolean>; reason: RawBuilder<string> }[] = [
  {
    due: sql`state in ('running', 'draining', 'pausing', 'paused', 'resuming') and expires_at < now()`,
    reason: sql`'max_runtime_seconds: runtime ' || extract(epoch from now() - created_at)::bigint || ' s exceeded the ceiling'`,
  },
  {
    due: sql`state = 'provisioning' and queue_deadline is not null and expires_at < now()`,
    reason: sql`'max_runtime_seconds: its lifetime, as it was renewed, ended while it waited for room'`,
  },
  {
    due: sql`state = 'provisioning' and startup is not null and expires_at < now()`,
    reason: sql`'max_runtime_seconds: its startup did not end in ' || extract(epoch from now() - created_at)::bigint || ' s'`,
  },
  {
    due: sql`state = 'running' and idle_action = 'destroy' and ${isIdle}`,
    reason: sql`'idle_timeout_seconds: no exec or attach for ' || (spec ->> 'idle_timeout_seconds') || ' s'`,
  },
  {
    due: sql`run_id is not null and state not in ('destroying', 'destroyed', 'failed') and not exists (
      select from runs where runs.id = environments.run_id
        and (runs.finished_at is null or runs.finished_at >= now() - ${RUN_GRACE}))`,
    reason: sql`'its run has ended'`,
  },
];

export const isDue = sql<boolean>`(${sql.join(
  causes.map(({ due }) => sql`(${due})`),
  sql` or `,
)})`;
const reason = sql<string>`case ${sql.join(
  causes.map(({ due, reason: why }) => sql`when ${due} then ${why}`),
  sql` `,
)} end`;

/** True: it is `destroying` now, and whoever comes by finishes it. False: it is not due any more. */
export function markDue({ db }: EnvironmentContext, uid: string): Promise<boolean> {
  return db.transaction(async (tx) => {
    const due = await tx
      .selectFrom('environments')
      .select(reason.as('reason'))
      .where('uid', '=', uid)
      .where(isDue)
      .forUpdate()
      .executeTakeFirst();
    const row = due === undefined ? undefined : await environmentByUid(tx, uid);
    if (due === undefined || row === undefined) return false;
    return (await transition(tx, row, 'destroying', due.reason)) !== undefined;
  });
}

/**
 * `PATCH /v1/environments/{id}`. The row is held while it is changed, as it is by whoever ends it (expire-environment.ts): a lifetime is renewed before its end is
 * committed, and then it does not end, or not at all. The version stays: whoever drives the environment to another state goes on.
 */
import { AppError, type UpdateEnvironment } from '@fuse/contract';
import { sql, type Updateable } from 'kysely';
import { jsonb, now } from '../db/db.ts';
import type { EnvironmentRow, EnvironmentsTable } from '../db/schema.ts';
import { acceptRenewal } from './accept-admission.ts';
import { isGone } from './environment.ts';
import type { EnvironmentContext } from './environment-context.ts';
import { lifetimeOf } from './environment-store.ts';

/** 409 once it is going, gone, or its lifetime is over; 429 when its tenant's environments may not last so long. */
export function updateEnvironment(
  context: EnvironmentContext,
  uid: string,
  request: UpdateEnvironment,
): Promise<EnvironmentRow> {
  return context.db.transaction(async (tx) => {
    if (request.expires_in_seconds !== undefined) await acceptRenewal(tx, uid, request.expires_in_seconds);
    const row = await tx
      .selectFrom('environments')
      .selectAll()
      .select(sql<boolean>`coalesce(expires_at < clock_timestamp(), false)`.as('is_over'))
      .where('uid', '=', uid)
      .forUpdate()
      .executeTakeFirst();
    if (row === undefined || row.state === 'destroying' || isGone(row.state))
      throw new AppError('conflict', `vm ${row?.id ?? ''} is ${row?.state ?? 'gone'}`, {
        details: { state: row?.state ?? 'destroyed' },
      });
    if (row.run_id !== null)
      throw new AppError('conflict', `vm ${row.id} belongs to run ${row.run_id}`, {
        details: { state: row.state, run_id: row.run_id },
        hint: 'How long it lives is the run\'s affair: its "limits.timeout_ms".',
      });
    if (row.is_over)
      throw new AppError('conflict', `vm ${row.id}: its lifetime is over`, { details: { state: row.state } });
    const changes = changesOf(row, request);
    if (Object.keys(changes).length === 0) return row;
    return tx
      .updateTable('environments')
      .set({ ...changes, updated_at: now })
      .where('uid', '=', uid)
      .returningAll()
      .executeTakeFirstOrThrow();
  });
}

function changesOf(row: EnvironmentRow, request: UpdateEnvironment): Updateable<EnvironmentsTable> {
  const { expires_in_seconds, idle_timeout_seconds, labels } = request;
  return {
    ...lifetimeOf(request),
    ...(labels === undefined ? {} : { labels: jsonb(labels) }),
    ...(expires_in_seconds === undefined
      ? {}
      : { expires_at: sql<Date>`clock_timestamp() + ${expires_in_seconds}::bigint * interval '1 second'` }),
    // Its clock begins anew: of one that could not become idle nobody has written down when it was used.
    ...(idle_timeout_seconds === undefined
      ? {}
      : { spec: jsonb({ ...row.spec, idle_timeout_seconds }), last_activity_at: now }),
  };
}

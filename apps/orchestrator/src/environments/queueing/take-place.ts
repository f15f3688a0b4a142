/** What becomes of an environment that waits for room: a place, or none in time. */
import { sql } from 'kysely';
import { channels, inMs, jsonb, notify, now, type Queryable, type Tx } from '../../db/db.ts';
import type { EnvironmentRow } from '../../db/schema.ts';
import { type Excess, quotaExceeded } from '../../quotas/quotas.ts';
import { overReservation } from '../../quotas/take-quota.ts';
import type { Placed, Placement } from '../../scheduling/placement.ts';
import { place } from '../admission.ts';
import { effectiveSpec } from '../environment.ts';
import type { EnvironmentContext } from '../environment-context.ts';
import { environmentByUid, transition } from '../environment-store.ts';
import { explanationOf, placementColumn } from '../placement-report.ts';
import { wantedByRow } from './waiting.ts';

export interface Taken {
  environment: EnvironmentRow;
  /** A request waits with it and starts it, in whichever process; else whoever gave the place does. */
  isAwaited: boolean;
}

/** Undefined when it waits no more. The caller holds the hosts, and has found that it fits. */
export async function takePlace(
  { owner, startLeaseMs }: EnvironmentContext,
  tx: Tx,
  uid: string,
  placement: Placed,
): Promise<Taken | undefined> {
  const row = await tx
    .selectFrom('environments')
    .select(['spec', sql<boolean>`coalesce(lease_until > now(), false)`.as('isAwaited')])
    .where('uid', '=', uid)
    .where('state', '=', 'provisioning')
    .where('queue_deadline', '>', now)
    .where(sql<boolean>`coalesce(expires_at > now(), true)`)
    .forUpdate()
    .executeTakeFirst();
  if (row === undefined) return undefined;
  const { isAwaited } = row;
  const environment = await tx
    .updateTable('environments')
    .set({
      host_id: placement.hostId,
      gpus: placement.gpus === undefined ? null : jsonb(placement.gpus),
      placement: placementColumn(explanationOf(placement)),
      queue_deadline: null,
      // One that was renewed while it waited keeps what it was told.
      expires_at: sql<Date>`coalesce(expires_at, ${inMs(effectiveSpec(row.spec).max_runtime_seconds * 1_000)})`,
      ...(isAwaited ? {} : { lease_owner: owner }),
      lease_until: inMs(startLeaseMs),
      version: sql<number>`version + 1`,
      updated_at: now,
    })
    .where('uid', '=', uid)
    .returningAll()
    .executeTakeFirstOrThrow();
  await notify(tx, channels.events, `environment:${uid}`); // its state is as before: no event, but who waits with it looks
  return { environment, isAwaited };
}

/** From now on nobody waits with any of them. */
export async function endWaitersLeases(db: Queryable): Promise<void> {
  await db.updateTable('environments').set({ lease_until: now }).where('queue_deadline', 'is not', null).execute();
}

const AT_ONCE = 50;

/** Those whose time is over become `failed`, with what was in the way at the end. */
export async function failOverdue(context: EnvironmentContext): Promise<void> {
  const overdue = await context.db.query
    .selectFrom('environments')
    .select('uid')
    .where('state', '=', 'provisioning')
    .where('queue_deadline', '<=', now)
    .limit(AT_ONCE)
    .execute();
  for (const { uid } of overdue) await failOne(context, uid);
}

async function failOne(context: EnvironmentContext, uid: string): Promise<void> {
  const { db } = context;
  const row = await environmentByUid(db.query, uid);
  if (row === undefined || row.queue_deadline === null) return;
  const wanted = await wantedByRow(db.query, row);
  const placement = await place(context, db.query, wanted);
  const { cpus, ram_mb, storage_gb } = wanted;
  const over = await db.transaction((tx) =>
    overReservation(tx, row.tenant_id, { environments: 1, cpus, ram_mb, storage_gb }),
  );
  const { hosts, message: last } = obstacleOf(row.tenant_id, over, placement);
  const waitedSeconds = Math.round((row.queue_deadline.getTime() - row.created_at.getTime()) / 1_000);
  const error = `no room within queue_timeout_seconds (${waitedSeconds} s): ${last}`;
  const explained = { hosts, message: last };
  await db.transaction((tx) =>
    transition(tx, row, 'failed', { error, columns: { placement: placementColumn(explained) } }),
  );
}

/** What kept it waiting at the end: its tenant, whatever hosts have, or the hosts. */
function obstacleOf(
  tenantId: string,
  over: Excess | 'disabled' | undefined,
  placement: Placement,
): Pick<Placement, 'hosts'> & { message: string } {
  if (over === 'disabled') return { hosts: [], message: `tenant ${tenantId} is disabled` };
  if (over !== undefined) return { hosts: [], message: quotaExceeded(over).message };
  // Room that has just come is somebody else's turn.
  if (placement.kind === 'placed') return { hosts: [], message: 'others were first' };
  return placement;
}

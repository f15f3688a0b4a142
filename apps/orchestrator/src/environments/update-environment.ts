/**
 * `PATCH /v1/environments/{id}`. The row is held while it is changed, as it is by whoever ends it (expire-environment.ts): a lifetime is renewed before its end is
 * committed, and then it does not end, or not at all. The version stays: whoever drives the environment to another state goes on.
 */
import { AppError, canonicalPolicy, type NetworkPolicy, type UpdateEnvironment } from '@fuse/contract';
import { sql, type Updateable } from 'kysely';
import { jsonb, now, type Tx } from '../db/db.ts';
import type { EnvironmentRow, EnvironmentsTable } from '../db/schema.ts';
import { chooseNetwork } from '../network/choose-network.ts';
import { noNetworkCard } from '../network/enforce-network.ts';
import { lockLimits } from '../quotas/quota-store.ts';
import { acceptRenewal } from './accept-admission.ts';
import { isGone } from './environment.ts';
import type { EnvironmentContext } from './environment-context.ts';
import { lifetimeOf } from './environment-store.ts';
import { checkSavesNothing } from './gpus.ts';

/**
 * 409 once it is going, gone, or its lifetime is over; 429 when its tenant's environments may not last so long, 403 when they may not reach so much. Its host
 * does not enforce another network yet.
 */
export async function updateEnvironment(
  context: EnvironmentContext,
  uid: string,
  request: UpdateEnvironment,
): Promise<{ before: EnvironmentRow; after: EnvironmentRow }> {
  const asked = request.network && canonicalPolicy(request.network);
  return context.db.transaction(async (tx) => {
    const network = asked && (await acceptNetwork(tx, context, uid, asked));
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
        hint: 'How long it lives, and what it may reach, is the run\'s affair: its "limits.timeout_ms" and "network".',
      });
    if (row.is_over)
      throw new AppError('conflict', `vm ${row.id}: its lifetime is over`, { details: { state: row.state } });
    if (network !== undefined && network.egress !== 'none' && !mayHaveCard(row)) throw noNetworkCard(row.id);
    checkSavesNothing({ ...request, spec: row.spec });
    const changes = { ...changesOf(row, request), ...(network === undefined ? {} : { network: jsonb(network) }) };
    if (Object.keys(changes).length === 0) return { before: row, after: row };
    const after = await tx
      .updateTable('environments')
      .set({ ...changes, updated_at: now })
      .where('uid', '=', uid)
      .returningAll()
      .executeTakeFirstOrThrow();
    return { before: row, after };
  });
}

/** Its tenant's row is held from now on, before its own. */
async function acceptNetwork(
  tx: Tx,
  context: EnvironmentContext,
  uid: string,
  asked: NetworkPolicy,
): Promise<NetworkPolicy | undefined> {
  const row = await tx.selectFrom('environments').select('tenant_id').where('uid', '=', uid).executeTakeFirst();
  if (row === undefined) return undefined;
  await lockLimits(tx, row.tenant_id);
  return chooseNetwork(tx, context.network, { tenantId: row.tenant_id, asked });
}

/** Of one that is being started nobody knows yet, but what it is started with. */
const mayHaveCard = ({ network_card, host_id, network, seed_snapshot_id }: EnvironmentRow): boolean =>
  network_card ?? (host_id === null || network.egress !== 'none' || seed_snapshot_id !== null);

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

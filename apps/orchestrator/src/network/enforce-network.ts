/**
 * What a row says, and the maxima, brought to the host that enforces it. Always what is true now: the row is read, its host told, and the row read again, so that
 * of several changes at once the last one is there in the end, and whoever waits for any of them has waited for that.
 */
import { AppError, isSamePolicy, type NetworkPolicy } from '@fuse/contract';
import type { HostVm } from '@fuse/host-protocol';
import type { EnvironmentRow } from '../db/schema.ts';
import { isGone } from '../environments/environment.ts';
import type { EnvironmentContext } from '../environments/environment-context.ts';
import { environmentByUid } from '../environments/environment-store.ts';
import { persistently } from '../hosts/host-retries.ts';
import { isHostUnreachable } from '../hosts/host-transport.ts';
import { policiesOf } from './choose-network.ts';

export const NO_NETWORK_CARD = 'no_network_card';

/** Resolves once its host enforces it, or there is nothing to enforce. Rejects with 409 `no_network_card`, and with 503 when its host does not answer. */
export async function enforceNetwork(context: EnvironmentContext, uid: string, signal?: AbortSignal): Promise<void> {
  let enforced: NetworkPolicy[] | undefined;
  for (;;) {
    const row = await environmentByUid(context.db.query, uid);
    if (row === undefined || !hasCard(row)) return;
    const policies = await policiesOf(context.db.query, context.network, row);
    if (enforced !== undefined && areSame(enforced, policies)) return;
    if (!(await put(context, row, policies, signal))) return;
    enforced = policies;
  }
}

/** Whether there may be a card with a VM around it. */
const hasCard = (row: EnvironmentRow): boolean =>
  row.host_id !== null && row.network_card !== false && row.state !== 'destroying' && !isGone(row.state);

export const areSame = (a: readonly NetworkPolicy[], b: readonly NetworkPolicy[]): boolean =>
  a.length === b.length && a.every((policy, at) => isSamePolicy(policy, b[at] ?? policy));

/** Of a VM that its host has just started, resumed or restored: what it was given may be true no more. */
export async function settleNetwork(
  context: EnvironmentContext,
  uid: string,
  vm: Pick<HostVm, 'network'>,
  signal?: AbortSignal,
): Promise<void> {
  if (vm.network === undefined) return;
  const row = await environmentByUid(context.db.query, uid);
  if (row === undefined) return;
  const policies = await policiesOf(context.db.query, context.network, row);
  if (!areSame(vm.network.policies, policies)) await enforceNetwork(context, uid, signal);
}

/** False: its VM is not there yet, and whoever makes it looks at the row again (`settleNetwork`). */
async function put(
  context: EnvironmentContext,
  row: EnvironmentRow,
  policies: NetworkPolicy[],
  signal: AbortSignal | undefined,
): Promise<boolean> {
  try {
    const client = await context.hosts.client(row.host_id);
    await persistently(context.hostRetryMs, () => client.putNetwork(row.vm_id, { policies }, signal), signal);
    return true;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    if (error.details?.reason === NO_NETWORK_CARD) throw noNetworkCard(row.id, error);
    if (row.state === 'provisioning') return false;
    if (isHostUnreachable(error)) throw notEnforcedYet(row.id, error);
    throw error;
  }
}

export const noNetworkCard = (id: string, cause?: unknown): AppError =>
  new AppError('conflict', `vm ${id} was started without a network card, and nothing that goes on from it gets one`, {
    cause,
    details: { reason: NO_NETWORK_CARD, field: 'network' },
    hint: 'Start it with {"egress": "allowlist"} and no "allow" when it may need a network later.',
  });

const notEnforcedYet = (id: string, cause: AppError): AppError =>
  new AppError('unavailable', `vm ${id}: its network is changed, and its host cannot be reached to enforce that`, {
    cause,
    details: { reason: 'host_unreachable' },
    hint: 'It is enforced as soon as its host answers; asking again waits for that.',
    retryAfterSeconds: 5,
  });

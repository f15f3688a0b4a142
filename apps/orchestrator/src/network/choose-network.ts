/** Which policy something new gets, or a changed one: in the transaction that admits it, so that a maximum is never changed in between. */
import { AppError, type NetworkPolicy, policyWithin } from '@fuse/contract';
import type { Queryable, Tx } from '../db/db.ts';
import type { NetworkConfig } from './network-config.ts';

export interface NetworkWish {
  tenantId: string;
  /** As the request says, canonical. */
  asked: NetworkPolicy | undefined;
  /** Of what it goes on from. */
  inherited?: NetworkPolicy | undefined;
}

/**
 * What is asked for must be within the maxima: 403, naming rule and maximum. What is inherited, or a default, is kept as it is: the maxima hold beside it. The
 * tenant's row is held.
 */
export async function chooseNetwork(
  tx: Tx,
  config: NetworkConfig,
  { tenantId, asked, inherited }: NetworkWish,
): Promise<NetworkPolicy> {
  if (asked === undefined && inherited !== undefined) return inherited;
  const tenant = await tenantNetworks(tx, tenantId);
  if (asked === undefined) return tenant.network_default ?? config.default;
  requireWithin(asked, tenant.network_max, 'tenant', `tenant ${tenantId}`);
  requireWithin(asked, config.max ?? null, 'deployment', 'this deployment');
  return asked;
}

async function tenantNetworks(db: Queryable, id: string) {
  const row = await db
    .selectFrom('tenants')
    .select(['network_max', 'network_default'])
    .where('id', '=', id)
    .executeTakeFirst();
  return row ?? { network_max: null, network_default: null };
}

function requireWithin(
  policy: NetworkPolicy,
  max: NetworkPolicy | null,
  ceiling: 'tenant' | 'deployment',
  whose: string,
): void {
  const excess = max === null ? undefined : policyWithin(policy, max);
  if (max === null || excess === undefined) return;
  const field = `network.${excess.field}`;
  throw new AppError('forbidden', `${field}: "${excess.what}" ${excess.why}: more than ${whose} may reach`, {
    details: { field, rule: excess.what, ceiling, max_egress: max.egress },
    hint: `The maximum of ${whose} is egress "${max.egress}"; its operator can change it.`,
  });
}

/** All of them must allow: its own policy, and whatever maxima there are now. */
export async function policiesOf(
  db: Queryable,
  config: NetworkConfig,
  { tenant_id, network }: { tenant_id: string; network: NetworkPolicy },
): Promise<NetworkPolicy[]> {
  return withMaxima(network, (await tenantNetworks(db, tenant_id)).network_max, config);
}

export const withMaxima = (
  own: NetworkPolicy,
  tenantMax: NetworkPolicy | null,
  { max }: NetworkConfig,
): NetworkPolicy[] => [own, tenantMax, max].filter((policy) => policy !== null && policy !== undefined);

/** Maximum and default of a tenant's networks, as a request changes them. Pure. */
import { canonicalPolicy, type GivenNetworkPolicy, invalidField, policyWithin } from '@fuse/contract';
import type { TenantRow } from './tenant.ts';
import type { TenantNetworks } from './tenant-store.ts';

type Given = GivenNetworkPolicy | null | undefined;

/** What is absent stays, null takes it away. 400 when the default is more than the maximum. */
export function changedNetworks(
  before: Pick<TenantRow, 'network_max' | 'network_default'> | undefined,
  given: { network_max?: Given; network_default?: Given },
): TenantNetworks {
  const changed = (key: 'network_max' | 'network_default') => {
    const asked = given[key];
    return asked === undefined ? (before?.[key] ?? null) : asked && canonicalPolicy(asked, key);
  };
  const networks = { max: changed('network_max'), default: changed('network_default') };
  const excess = networks.max && networks.default && policyWithin(networks.default, networks.max);
  if (excess)
    throw invalidField(
      given.network_default === undefined ? 'network_max' : `network_default.${excess.field}`,
      `the default is more than the maximum: "${excess.what}" ${excess.why}`,
      'Change both, so that the default is within the maximum.',
    );
  return networks;
}

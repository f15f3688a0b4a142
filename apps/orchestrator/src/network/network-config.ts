/** What a deployment says of networks: the policy of those that ask for none of their own, and the most that anybody gets. */
import { AppError, canonicalPolicy, GivenNetworkPolicy, type NetworkPolicy, NO_NETWORK } from '@fuse/contract';

export interface NetworkConfig {
  /** Of tenants without a default of their own. */
  default: NetworkPolicy;
  /** Undefined: no maximum. */
  max?: NetworkPolicy | undefined;
}

export const defaultNetworkConfig: NetworkConfig = { default: NO_NETWORK };

/** A level, or a policy as JSON. Throws an AppError that says what is wrong. */
export function parseNetwork(text: string): NetworkPolicy {
  const given = GivenNetworkPolicy.safeParse(text.trimStart().startsWith('{') ? jsonOf(text) : { egress: text });
  if (!given.success)
    throw new AppError(
      'invalid_argument',
      'must be none, allowlist, internet, or a policy as JSON such as {"egress": "allowlist", "allow": ["pypi.org"]}',
    );
  return canonicalPolicy(given.data, '');
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // no policy
  }
}

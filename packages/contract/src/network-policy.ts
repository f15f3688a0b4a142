/** Whole policies: made canonical, and compared with a ceiling. Pure. */
import { invalidField } from './errors.ts';
import { egressLevels, type GivenNetworkPolicy, NetworkPolicy, type NetworkRule } from './network.ts';
import { canonicalRule, isCovered, type RuleKind, ruleText } from './network-rule.ts';

/** As it is kept, shown and enforced. Throws 400 with the field beneath `field` and a hint. Rules keep their order; one that is there twice is there once. */
export function canonicalPolicy(given: GivenNetworkPolicy, field = 'network'): NetworkPolicy {
  const { egress, allow = [], deny = [] } = given;
  if (egress !== 'allowlist' && allow.length > 0)
    throw invalidField(
      `${field}.allow`,
      `goes with egress "allowlist" alone, not with "${egress}"`,
      egress === 'none'
        ? 'Set "egress" to "allowlist".'
        : '"internet" allows every public name and address: leave "allow" out, or set "egress" to "allowlist".',
    );
  return { egress, allow: rulesOf(allow, 'allow', `${field}.allow`), deny: rulesOf(deny, 'deny', `${field}.deny`) };
}

function rulesOf(given: NonNullable<GivenNetworkPolicy['allow']>, kind: RuleKind, field: string): NetworkRule[] {
  const rules = new Map<string, NetworkRule>();
  for (const [at, one] of given.entries()) {
    const rule = canonicalRule(one, kind);
    if ('problem' in rule) {
      const shown = JSON.stringify(typeof one === 'string' ? one.slice(0, 100) : 'host' in one ? one.host : one.cidr);
      throw invalidField(
        [field, at, rule.field].filter((part) => part !== undefined).join('.'),
        `${shown} ${rule.problem}`,
        rule.hint,
      );
    }
    rules.set(ruleText(rule), rule);
  }
  return [...rules.values()];
}

/** What of a policy is more than a ceiling allows. */
export interface Excess {
  /** Beneath the policy: `egress`, or `allow.3`. */
  field: string;
  /** The rule as text; of a level, its name. */
  what: string;
  /** Such as `is more than egress "allowlist"`. */
  why: string;
}

/**
 * Undefined: everything that `policy` allows, `max` has an own rule or its level for. What `max` denies need not be denied by the policy too: both are enforced, and
 * a rule exceeds it only where all that it names is denied. A range or name must lie within one rule of `max`; its ports may be spread over several.
 */
export function policyWithin(policy: NetworkPolicy, max: NetworkPolicy): Excess | undefined {
  if (egressLevels.indexOf(policy.egress) > egressLevels.indexOf(max.egress))
    return { field: 'egress', what: policy.egress, why: `is more than egress "${max.egress}"` };
  if (policy.egress !== 'allowlist') return undefined;
  for (const [at, rule] of policy.allow.entries()) {
    const excess = { field: `allow.${at}`, what: ruleText(rule) };
    if (max.egress === 'allowlist' && !isCovered(rule, max.allow))
      return { ...excess, why: 'is in no rule of what may be allowed' };
    if (isCovered(rule, max.deny)) return { ...excess, why: 'is denied' };
  }
  return undefined;
}

/** Whether both say the same, whatever order a database keeps their fields in. */
export const isSamePolicy = (a: NetworkPolicy, b: NetworkPolicy): boolean =>
  JSON.stringify(NetworkPolicy.parse(a)) === JSON.stringify(NetworkPolicy.parse(b));

/**
 * What a guest may reach: the policy of an environment or a run, and what became of its connections. All of this is ours, api.md has none.
 *
 *   network on create of an environment or a run; PATCH /v1/environments/{id} {network} changes it while it runs (docs/network.md)
 *   GET /v1/environments/{id}/network -> EnvironmentNetwork, of the last one of this id that is gone too
 *
 * `none`: no network card at all. `allowlist`: names and addresses that a rule allows. `internet`: every public name and address. `deny` wins over `allow`, always.
 * Whatever a policy says: TCP and DNS only; never another VM, an address of the host, or a private, link-local, carrier-grade or other special range unless the host's operator
 * named it (FUSE_EGRESS_PRIVATE); the metadata address never.
 */
import { z } from 'zod';
import { absentIfNull, Timestamp } from './primitives.ts';

/** From narrow to wide. */
export const egressLevels = ['none', 'allowlist', 'internet'] as const;
export const Egress = z.enum(egressLevels);
export type Egress = z.infer<typeof Egress>;

export const MAX_NETWORK_RULES = 256;
export const DEFAULT_RULE_PORTS: readonly PortRange[] = [
  { from: 80, to: 80 },
  { from: 443, to: 443 },
];
export const ALL_PORTS: readonly PortRange[] = [{ from: 1, to: 65_535 }];

/** Both ends included. */
export const PortRange = z.object({
  from: z.number().int().min(1).max(65_535),
  to: z.number().int().min(1).max(65_535),
});
export type PortRange = z.infer<typeof PortRange>;

/**
 * As it is kept, shown and enforced. `host`: lower case, in ASCII (punycode), no final dot; `*.` in front stands for one label or more, not for the name itself.
 * `cidr`: in its shortest spelling, host bits zero, an IPv4-mapped one as IPv4.
 */
export const NetworkRule = z.union([
  z.object({ host: z.string(), ports: z.array(PortRange) }),
  z.object({ cidr: z.string(), ports: z.array(PortRange) }),
]);
export type NetworkRule = z.infer<typeof NetworkRule>;

export const NetworkPolicy = z.object({
  egress: Egress,
  /** With `allowlist` alone. */
  allow: z.array(NetworkRule),
  deny: z.array(NetworkRule),
});
export type NetworkPolicy = z.infer<typeof NetworkPolicy>;

export const NO_NETWORK: NetworkPolicy = { egress: 'none', allow: [], deny: [] };

/** Why something did not get through, or `undefined` where it did. */
export const refusalReasons = [
  'not_allowed', // no rule allows it
  'denied', // a rule of `deny` names it
  'forbidden_address', // a private, special or metadata address, or one that an allowed name resolved to
  'name_mismatch', // TLS or HTTP names another host than the one that was looked up
  'no_name', // TLS without a server name, HTTP without a host
  'unknown_protocol', // neither TLS nor HTTP on a port that is allowed for those
  'unknown_address', // of the range of looked-up names, and never given out to this VM
  'unresolvable', // the name has no address
  'connect_failed', // the other side refused or did not answer
  'too_many', // connections or names of this VM
] as const;
export const RefusalReason = z.enum(refusalReasons);
export type RefusalReason = z.infer<typeof RefusalReason>;

export const NetworkConnection = z.object({
  at: Timestamp,
  /** As the guest looked it up. */
  name: z.string().max(255).optional(),
  /** The real one, once it is known. */
  address: z.string().max(64).optional(),
  /** Absent for a look-up. */
  port: z.number().int().min(0).max(65_535).optional(),
  protocol: z.enum(['dns', 'tls', 'http', 'tcp']),
  verdict: z.enum(['allowed', 'refused']),
  reason: RefusalReason.optional(),
  /** For people. */
  detail: z.string().max(512).optional(),
  /** From the guest to the other side. */
  sent_bytes: z.number().int().nonnegative(),
  received_bytes: z.number().int().nonnegative(),
  /** Absent while it is open. */
  duration_ms: z.number().nonnegative().optional(),
  /** Equal refusals in a row are one entry. */
  count: z.number().int().positive(),
});
export type NetworkConnection = z.infer<typeof NetworkConnection>;

export const MAX_LISTED_CONNECTIONS = 1_000;

export const EnvironmentNetwork = z.object({
  policy: NetworkPolicy,
  /** The tenant's ceiling where there is one: both must allow. */
  tenant_max: NetworkPolicy.optional(),
  /** Likewise the deployment's. */
  deployment_max: NetworkPolicy.optional(),
  sent_bytes: z.number().int(),
  received_bytes: z.number().int(),
  /** All of them, those that are not listed any more too. */
  allowed_count: z.number().int(),
  refused_count: z.number().int(),
  /** The latest, newest first; empty once the environment is gone. */
  connections: z.array(NetworkConnection),
});
export type EnvironmentNetwork = z.infer<typeof EnvironmentNetwork>;

/** What a client gives: rules as `pypi.org`, `*.npmjs.org:443`, `github.com:22,443`, `203.0.113.0/24:8000-8100`, `[2001:db8::/32]:443`, `host:*`, or as objects. */
const GivenPorts = z
  .array(z.union([z.number().int().min(1).max(65_535), PortRange]))
  .min(1)
  .max(64);
export const GivenRule = z.union([
  z.string().min(1).max(512),
  z.strictObject({ host: z.string().min(1).max(255), ports: absentIfNull(GivenPorts) }),
  z.strictObject({ cidr: z.string().min(1).max(64), ports: absentIfNull(GivenPorts) }),
]);
export const GivenNetworkPolicy = z.strictObject({
  egress: Egress,
  allow: absentIfNull(z.array(GivenRule).max(MAX_NETWORK_RULES)),
  deny: absentIfNull(z.array(GivenRule).max(MAX_NETWORK_RULES)),
});
export type GivenNetworkPolicy = z.infer<typeof GivenNetworkPolicy>;

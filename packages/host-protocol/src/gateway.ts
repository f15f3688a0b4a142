/**
 * Host agent <-> gateway (gateway/, one process per host): HTTP/1.1 JSON over the Unix socket `control.sock` of its directory, which none but root and the gateway reach.
 * The gateway outlives the host agent; connections of guests go on meanwhile.
 *
 * A *slot* is a network namespace with a tap in it and three listeners that were made there (transparent TCP for every address and port, DNS over UDP, DNS over TCP).
 * They come over the Unix socket `listeners.sock`: one stream per slot, a line `{"slot": "<name>"}` with the three descriptors in that order as ancillary data of its
 * first byte, answered by `ok\n` or `error: …\n`. A slot that is there already is replaced. Without a VM everything in a slot is refused.
 *
 *   GET    /health              -> 200 GatewayHealth
 *   PUT    /config GatewayConfig -> 204; counts for what comes next
 *   DELETE /slots/{slot}        -> 204: listeners and connections closed, also when unknown
 *   PUT    /vms/{id} GatewayVm  -> 204: attached; again: its policies are these from now on, connections and looked-up names that they do not allow are cut. 404 unknown slot
 *   DELETE /vms/{id}            -> 200 GatewayTotals, its connections cut; 404 unknown
 *   GET    /vms                 -> 200 {vms: GatewayTotals[]}
 *   GET    /vms/{id}            -> 200 GatewayReport | 404
 */
import { NetworkConnection, NetworkPolicy } from '@fuse/contract';
import { z } from 'zod';

export const GATEWAY_PROTOCOL = 1;
/** What the guest sees; the same for every VM. RFC 7335 keeps this range out of every other use. */
export const GUEST_ADDRESS = '192.0.0.2';
export const GATEWAY_ADDRESS = '192.0.0.1';
/** What each guest with a card is told, beside a hardware address of its own. Agents set it up when they boot: a start from a template changes the hardware address alone. */
export const USUAL_NETWORK = {
  address: GUEST_ADDRESS,
  prefix_bits: 29,
  gateway: GATEWAY_ADDRESS,
  resolver: GATEWAY_ADDRESS,
  mtu: 1_500,
} as const;
/** In a slot: where its packet filter brings every TCP connection (0.0.0.0, IP_TRANSPARENT), and every look-up (UDP and TCP on GATEWAY_ADDRESS). */
export const TRANSPARENT_PORT = 15_001;
export const DNS_PORT = 53;
/** RFC 2544: looked-up names get addresses of it, each VM its own. */
export const SYNTHETIC_RANGE = '198.18.0.0/15';

export const GatewayHealth = z.object({ protocol: z.number().int(), version: z.string(), pid: z.number().int() });
export type GatewayHealth = z.infer<typeof GatewayHealth>;

export const GatewayConfig = z.object({
  /** `address:port` of resolvers, asked in this order. */
  resolvers: z.array(z.string()).min(1),
  /** Ranges that are private or special and may be reached where a policy allows it. Never metadata addresses. */
  private_allow: z.array(z.string()),
  /** The host's own addresses: refused like private ones. */
  host_addresses: z.array(z.string()),
  max_connections_per_vm: z.number().int().positive(),
});
export type GatewayConfig = z.infer<typeof GatewayConfig>;

export const GatewayVm = z.object({
  slot: z.string(),
  /** All of them must allow: the environment's own and its tenant's ceiling. */
  policies: z.array(NetworkPolicy).min(1).max(4),
  /** Both ways together; absent: no limit. */
  rate_bytes_per_second: z.number().int().positive().optional(),
});
export type GatewayVm = z.infer<typeof GatewayVm>;

const totals = {
  sent_bytes: z.number().int().nonnegative(),
  received_bytes: z.number().int().nonnegative(),
  allowed_count: z.number().int().nonnegative(),
  refused_count: z.number().int().nonnegative(),
};
export const GatewayTotals = z.object({
  id: z.string(),
  slot: z.string(),
  ...totals,
  open: z.number().int().nonnegative(),
  /** Rises with each entry of `latest_refused`. */
  refused_seq: z.number().int().nonnegative(),
  /** Of the last ones, newest last, at most 16. */
  latest_refused: z.array(NetworkConnection.extend({ seq: z.number().int() })).max(16),
});
export type GatewayTotals = z.infer<typeof GatewayTotals>;

export const GatewayReport = GatewayTotals.extend({
  policies: z.array(NetworkPolicy),
  /** Newest first, at most MAX_LISTED_CONNECTIONS. */
  connections: z.array(NetworkConnection),
});
export type GatewayReport = z.infer<typeof GatewayReport>;

/**
 * The network of one VM with a card, whatever becomes of its VMM, its slot and the gateway: its policies, and what has passed and been refused since it was
 * created. What the gateway counts begins anew with each attachment; here it is one sum.
 */
import { AppError, MAX_LISTED_CONNECTIONS, type NetworkConnection, type NetworkPolicy } from '@fuse/contract';
import type {
  GatewayReport,
  GatewayTotals,
  HostVm,
  VmNetwork,
  VmNetworkReport,
  VmNetworkTotals,
} from '@fuse/host-protocol';
import type { NetworkPast } from './network-past.ts';

type Counted = Pick<
  GatewayTotals,
  'sent_bytes' | 'received_bytes' | 'allowed_count' | 'refused_count' | 'refused_seq' | 'latest_refused'
>;

const NOTHING: NetworkPast = {
  sent_bytes: 0,
  received_bytes: 0,
  allowed_count: 0,
  refused_count: 0,
  refused_seq: 0,
  latest_refused: [],
};
const LATEST_REFUSED = 16;

/** A VM of this order is to have a card. */
export const wantsNetwork = (network: VmNetwork | undefined): boolean =>
  network?.policies.every(({ egress }) => egress !== 'none') === true;

export const noNetworkCardError = (why: string): AppError =>
  new AppError('conflict', `there is no network card: ${why}`, {
    details: { reason: 'no_network_card' },
    hint: 'start with egress `allowlist` and an empty `allow` what is to get a network later',
  });

export class VmNetworkState {
  policies: readonly NetworkPolicy[];
  #past: NetworkPast;
  #now: Counted = NOTHING;
  /** Of ended attachments, newest first; not kept by a host agent that ends. */
  #pastConnections: NetworkConnection[] = [];

  constructor(policies: readonly NetworkPolicy[], past: NetworkPast = NOTHING) {
    this.policies = policies;
    this.#past = past;
  }

  /** As the gateway says of the attachment of now. */
  count(now: Counted): void {
    this.#now = now;
  }

  /** The attachment has ended. */
  fold(connections: readonly NetworkConnection[] = []): void {
    this.#past = this.past;
    this.#now = NOTHING;
    this.#pastConnections = [...connections, ...this.#pastConnections].slice(0, MAX_LISTED_CONNECTIONS);
  }

  /** All up to now. */
  get past(): NetworkPast {
    const [past, now] = [this.#past, this.#now];
    const later = now.latest_refused.map((each) => ({ ...each, seq: each.seq + past.refused_seq }));
    return {
      sent_bytes: past.sent_bytes + now.sent_bytes,
      received_bytes: past.received_bytes + now.received_bytes,
      allowed_count: past.allowed_count + now.allowed_count,
      refused_count: past.refused_count + now.refused_count,
      refused_seq: past.refused_seq + now.refused_seq,
      latest_refused: [...past.latest_refused, ...later].slice(-LATEST_REFUSED),
    };
  }

  get totals(): VmNetworkTotals {
    const { sent_bytes, received_bytes, allowed_count, refused_count } = this.past;
    return { sent_bytes, received_bytes, allowed_count, refused_count };
  }

  view(): NonNullable<HostVm['network']> {
    const { sent_bytes, received_bytes, refused_seq, latest_refused } = this.past;
    return { policies: [...this.policies], sent_bytes, received_bytes, refused_seq, latest_refused };
  }

  report(now: GatewayReport | undefined, dropped_packets?: Record<string, number>): VmNetworkReport {
    if (now !== undefined) this.count(now);
    return {
      policies: [...this.policies],
      ...this.totals,
      connections: [...(now?.connections ?? []), ...this.#pastConnections].slice(0, MAX_LISTED_CONNECTIONS),
      ...(dropped_packets === undefined ? {} : { dropped_packets }),
    };
  }
}

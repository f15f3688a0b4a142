/** The network cards of a test host: policies as they are put, counts and connections as a test says. */
import { AppError, type NetworkConnection, type NetworkPolicy } from '@fuse/contract';
import type { CreateVm, HostVm, VmNetworkReport, VmNetworkTotals } from '@fuse/host-protocol';

type Card = NonNullable<HostVm['network']> & Omit<VmNetworkReport, 'policies'>;

const MAX_LATEST = 16;

export class TestHostNetworks {
  /** In the order in which they were put, with what they were created with. */
  readonly enforced: { id: string; policies: NetworkPolicy[] }[] = [];
  readonly #cards = new Map<string, Card>();

  /** `snapshotHasCard`: undefined without a seed. */
  create(id: string, { network, seed }: CreateVm, snapshotHasCard: boolean | undefined): void {
    const policies = network?.policies ?? [];
    const isWanted = policies.length > 0 && policies.every(({ egress }) => egress !== 'none');
    if (snapshotHasCard === false && isWanted && seed?.fallback === undefined) throw noCard();
    if (!(snapshotHasCard ?? isWanted) && !isWanted) return;
    this.#cards.set(id, {
      policies,
      sent_bytes: 0,
      received_bytes: 0,
      allowed_count: 0,
      refused_count: 0,
      refused_seq: 0,
      latest_refused: [],
      connections: [],
    });
    this.enforced.push({ id, policies });
  }

  set(id: string, policies: NetworkPolicy[]): void {
    const card = this.#cards.get(id);
    if (card === undefined) {
      if (policies.some(({ egress }) => egress === 'none')) return;
      throw noCard();
    }
    card.policies = policies;
    this.enforced.push({ id, policies });
  }

  of(id: string): HostVm['network'] {
    const card = this.#cards.get(id);
    if (card === undefined) return undefined;
    const { policies, sent_bytes, received_bytes, refused_seq, latest_refused } = card;
    return { policies, sent_bytes, received_bytes, refused_seq, latest_refused };
  }

  report(id: string): VmNetworkReport {
    const { policies, connections, ...totals } = this.#cards.get(id) ?? { policies: [], connections: [], ...NOTHING };
    const { sent_bytes, received_bytes, allowed_count, refused_count } = totals;
    return { policies, sent_bytes, received_bytes, allowed_count, refused_count, connections };
  }

  /** As a connection that was allowed and has ended. */
  carry(id: string, bytes: { sent: number; received: number }): void {
    const card = this.#card(id);
    card.sent_bytes += bytes.sent;
    card.received_bytes += bytes.received;
    card.allowed_count += 1;
    card.connections.unshift({
      ...CONNECTION,
      name: 'pypi.org',
      verdict: 'allowed',
      sent_bytes: bytes.sent,
      received_bytes: bytes.received,
    });
  }

  refuse(id: string, more: Partial<NetworkConnection> = {}): void {
    const card = this.#card(id);
    card.refused_count += 1;
    card.refused_seq += 1;
    const refusal = {
      ...CONNECTION,
      name: 'evil.example.com',
      verdict: 'refused',
      reason: 'not_allowed',
      ...more,
    } as const;
    card.connections.unshift(refusal);
    card.latest_refused = [...card.latest_refused, { ...refusal, seq: card.refused_seq }].slice(-MAX_LATEST);
  }

  remove(id: string): VmNetworkTotals | undefined {
    const isThere = this.#cards.has(id);
    const { policies: _, connections: _none, ...totals } = this.report(id);
    this.#cards.delete(id);
    return isThere ? totals : undefined;
  }

  #card(id: string): Card {
    const card = this.#cards.get(id);
    if (card === undefined) throw new Error(`VM ${id} has no network card`);
    return card;
  }
}

const NOTHING = { sent_bytes: 0, received_bytes: 0, allowed_count: 0, refused_count: 0 };
const CONNECTION = {
  at: '2026-01-02T03:04:05.000Z',
  port: 443,
  protocol: 'tls',
  sent_bytes: 0,
  received_bytes: 0,
  count: 1,
} as const;

const noCard = (): AppError =>
  new AppError('conflict', 'the VM has no network card', { details: { reason: 'no_network_card' } });

/** Cards, as a host lists them with its VMs, against what rows say: what is new of them is recorded, and policies that are not these are put right. */
import type { NetworkPolicy } from '@fuse/contract';
import type { HostVm } from '@fuse/host-protocol';
import type { Db, Queryable } from '../db/db.ts';
import { withMaxima } from './choose-network.ts';
import { areSame } from './enforce-network.ts';
import type { NetworkConfig } from './network-config.ts';
import { type NetworkTotals, NOTHING_CARRIED } from './network-totals.ts';
import { recordNetwork } from './record-network.ts';

export interface NetworkComparison {
  db: Db;
  config: NetworkConfig;
  /** Begins to enforce what is true then. */
  enforce(uid: string): void;
}

type Card = NonNullable<HostVm['network']>;

interface CardRow {
  uid: string;
  vm_id: string;
  network: NetworkPolicy;
  network_card: boolean | null;
  network_totals: NetworkTotals | null;
  network_max: NetworkPolicy | null;
}

/** `vms`: this cluster's on one host. */
export async function compareNetworks(
  { db, config, enforce }: NetworkComparison,
  vms: readonly HostVm[],
): Promise<void> {
  const cards = new Map(vms.flatMap(({ id, network }) => (network === undefined ? [] : [[id, network] as const])));
  if (cards.size === 0) return;
  for (const row of await rowsOf(db.query, [...cards.keys()])) {
    const card = cards.get(row.vm_id);
    if (card === undefined) continue;
    if (row.network_card !== true) await noteCard(db.query, row.uid);
    if (hasNews(row.network_totals ?? NOTHING_CARRIED, card)) await recordNetwork(db, row.uid, card);
    if (!areSame(card.policies, withMaxima(row.network, row.network_max, config))) enforce(row.uid);
  }
}

/** Also of runs, and of what is being started. */
function rowsOf(db: Queryable, vmIds: string[]): Promise<CardRow[]> {
  return db
    .selectFrom('environments')
    .innerJoin('tenants', 'tenants.id', 'environments.tenant_id')
    .select(['uid', 'vm_id', 'network', 'network_card', 'network_totals', 'network_max'])
    .where('vm_id', 'in', vmIds)
    .where('state', 'not in', ['destroying', 'destroyed', 'failed'])
    .execute();
}

async function noteCard(db: Queryable, uid: string): Promise<void> {
  await db.updateTable('environments').set({ network_card: true }).where('uid', '=', uid).execute();
}

const hasNews = (known: NetworkTotals, { sent_bytes, received_bytes, latest_refused }: Card): boolean =>
  sent_bytes > known.sent_bytes ||
  received_bytes > known.received_bytes ||
  latest_refused.some(({ seq }) => seq > known.refused_seq);

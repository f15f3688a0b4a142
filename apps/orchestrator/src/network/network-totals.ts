/** What an environment's card has carried, as its row keeps it. Pure. */
import type { HostVm } from '@fuse/host-protocol';

/** The highest that its host has reported. */
export interface NetworkTotals {
  sent_bytes: number;
  received_bytes: number;
  allowed_count: number;
  refused_count: number;
  /** Of refusals: those up to here were told. */
  refused_seq: number;
  /** In this minute of the database's clock so many were told. */
  told_minute: number;
  told: number;
}

export const NOTHING_CARRIED: NetworkTotals = {
  sent_bytes: 0,
  received_bytes: 0,
  allowed_count: 0,
  refused_count: 0,
  refused_seq: 0,
  told_minute: 0,
  told: 0,
};

export type Refusal = NonNullable<HostVm['network']>['latest_refused'][number];

const amounts = ['sent_bytes', 'received_bytes', 'allowed_count', 'refused_count'] as const;

/** What a host says: in a list of VMs, or at a VM's end. */
export type NetworkReport = Partial<Pick<NetworkTotals, (typeof amounts)[number]>> & {
  latest_refused?: readonly Refusal[];
};

/** A guest can be refused as often as it likes: what is over this waits for the next minute, and what is not listed any more by then is counted alone. */
export const MAX_TOLD_A_MINUTE = 30;

export interface Advance {
  totals: NetworkTotals;
  /** Since the last report. */
  sentBytes: number;
  /** To be told, oldest first. */
  told: readonly Refusal[];
  /** So many before the first of them never will be. */
  missed: number;
}

/** Reports may come late or twice: nothing goes back. Undefined: nothing new. */
export function advance(before: NetworkTotals, report: NetworkReport, minute: number): Advance | undefined {
  const toldBefore = before.told_minute === minute ? before.told : 0;
  const told = (report.latest_refused ?? [])
    .filter(({ seq }) => seq > before.refused_seq)
    .sort((a, b) => a.seq - b.seq)
    .slice(0, Math.max(0, MAX_TOLD_A_MINUTE - toldBefore));
  const totals: NetworkTotals = {
    ...before,
    refused_seq: told.at(-1)?.seq ?? before.refused_seq,
    told_minute: minute,
    told: toldBefore + told.length,
  };
  for (const key of amounts) totals[key] = Math.max(before[key], report[key] ?? 0);
  if (told.length === 0 && amounts.every((key) => totals[key] === before[key])) return undefined;
  const missed = (told[0]?.seq ?? 1) - before.refused_seq - 1;
  return { totals, sentBytes: totals.sent_bytes - before.sent_bytes, told, missed: Math.max(0, missed) };
}

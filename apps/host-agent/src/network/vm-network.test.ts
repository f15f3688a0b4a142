import { describe, expect, it } from 'vitest';
import { NetworkPast } from './network-past.ts';
import { VmNetworkState } from './vm-network.ts';

const refused = (seq: number) => ({
  at: '2026-01-01T00:00:00.000Z',
  name: `${seq}.example.org`,
  protocol: 'dns' as const,
  verdict: 'refused' as const,
  reason: 'not_allowed' as const,
  ...{ sent_bytes: 0, received_bytes: 0, count: 1, seq },
});
const counted = (refusals: number) => ({
  ...{ sent_bytes: 10, received_bytes: 100, allowed_count: 1, refused_count: refusals, refused_seq: refusals },
  latest_refused: Array.from({ length: Math.min(refusals, 16) }, (_, index) =>
    refused(refusals - Math.min(refusals, 16) + index + 1),
  ),
});

describe('what has passed of a VM', () => {
  it('is one sum over attachments, whose refusals are numbered on', () => {
    const state = new VmNetworkState([]);
    state.count(counted(2));
    state.fold();
    state.count(counted(1));
    state.count(counted(3));
    expect(state.totals).toEqual({ sent_bytes: 20, received_bytes: 200, allowed_count: 2, refused_count: 5 });
    const { refused_seq, latest_refused } = state.view();
    expect(refused_seq).toBe(5);
    expect(latest_refused.map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5]);
  });

  it('is as many of the latest refusals as a list may have', () => {
    const state = new VmNetworkState([]);
    state.count(counted(20));
    state.fold();
    state.count(counted(2));
    expect(state.view().latest_refused.map(({ seq }) => seq)).toEqual(
      Array.from({ length: 16 }, (_, index) => index + 7),
    );
  });

  it('goes on from what a record kept', () => {
    const before = new VmNetworkState([]);
    before.count(counted(3));
    const kept = NetworkPast.parse(JSON.parse(JSON.stringify(before.past)));
    const after = new VmNetworkState([], kept);
    after.count(counted(1));
    expect(after.view()).toMatchObject({ refused_seq: 4, sent_bytes: 20 });
  });

  it('keeps the connections of ended attachments behind those of now', () => {
    const state = new VmNetworkState([]);
    state.fold([refused(1)]);
    const now = { id: 'vm', slot: 's', policies: [], open: 0, ...counted(1), connections: [refused(2)] };
    expect(state.report(now).connections.map(({ name }) => name)).toEqual(['2.example.org', '1.example.org']);
  });
});

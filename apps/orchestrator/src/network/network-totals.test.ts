import fc from 'fast-check';
import { expect, it } from 'vitest';
import { advance, MAX_TOLD_A_MINUTE, NOTHING_CARRIED, type Refusal } from './network-totals.ts';

const refusal = (seq: number): Refusal => ({
  seq,
  at: '2026-01-02T03:04:05Z',
  protocol: 'tls',
  verdict: 'refused',
  sent_bytes: 0,
  received_bytes: 0,
  count: 1,
});
/** What a host says when it has refused so often and sent so much. */
const report = (seq: number, sent: number) => ({
  sent_bytes: sent,
  received_bytes: 0,
  latest_refused: Array.from({ length: Math.min(16, seq) }, (_, at) => refusal(seq - Math.min(16, seq) + 1 + at)),
});

it('whatever order reports come in, bytes add up to the highest and no refusal is told twice or out of order', () => {
  const moment = fc.record({ seq: fc.nat(200), sent: fc.nat(10_000), minute: fc.integer({ min: 1, max: 4 }) });
  fc.assert(
    fc.property(fc.array(moment, { minLength: 1, maxLength: 30 }), (moments) => {
      let totals = NOTHING_CARRIED;
      let billed = 0;
      let accounted = 0;
      const perMinute = new Map<number, number>();
      const told: number[] = [];
      // Minutes are a clock's: they do not go back.
      const minutes = moments.map(({ minute }) => minute).sort();
      for (const [at, { seq, sent }] of moments.entries()) {
        const minute = minutes[at] ?? 0;
        const next = advance(totals, report(seq, sent), minute);
        if (next === undefined) continue;
        totals = next.totals;
        billed += next.sentBytes;
        accounted += next.missed + next.told.length;
        told.push(...next.told.map((one) => one.seq));
        perMinute.set(minute, (perMinute.get(minute) ?? 0) + next.told.length);
      }
      expect(billed).toBe(Math.max(...moments.map(({ sent }) => sent)));
      expect(told).toEqual([...new Set(told)].sort((a, b) => a - b));
      expect(accounted).toBe(told.at(-1) ?? 0);
      for (const count of perMinute.values()) expect(count).toBeLessThanOrEqual(MAX_TOLD_A_MINUTE);
    }),
  );
});

it('what is over the rate is told in the next minute, with how many are missed', () => {
  let totals = NOTHING_CARRIED;
  for (const seq of [16, 30]) totals = advance(totals, report(seq, 0), 1)?.totals ?? totals;
  expect(advance(totals, report(60, 0), 1)).toBeUndefined();
  expect(advance(totals, report(60, 0), 2)).toMatchObject({ missed: 14, told: { length: 16 } });
});

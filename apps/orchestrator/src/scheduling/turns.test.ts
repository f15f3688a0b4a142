import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Capacity, type SchedulableHost, schedule, wouldTakeWithRoom } from './schedule.ts';
import { HOLD_MS, leftOver, OVERTAKE_MS, type Queue, type QuotaRoom, turns, type Waiter } from './turns.ts';

const KEYS = ['cpus', 'ram_mb', 'storage_gb', 'vm_count'] as const;

const host = (id: string, cpus: number, changes: Partial<SchedulableHost> = {}): SchedulableHost => ({
  id,
  state: 'active',
  reachable: true,
  arch: 'amd64',
  backend: 'qemu',
  labels: {},
  images: ['base'],
  templates: [],
  capacity: { cpus, ram_mb: 16_384, storage_gb: 100, vm_count: 10 },
  used: { cpus: 0, ram_mb: 0, storage_gb: 0, vm_count: 0 },
  ...changes,
});
const waiter = (id: string, tenantId: string, cpus: number, waitedMs: number, more = {}): Waiter => ({
  id,
  tenantId,
  spec: { cpus, ram_mb: 128, storage_gb: 1, image: 'base', ...more },
  waitedMs,
});
const queueOf = (waiting: Waiter[], more: Partial<Queue> = {}): Queue => ({
  waiting,
  servedAt: new Map(),
  quotas: new Map(),
  own: new Map(),
  atMs: 0,
  ...more,
});
const served = (queue: Queue, hosts: SchedulableHost[]) =>
  [...turns(queue, hosts, 'spread')].map((turn) => turn.waiter.id);

describe('turns', () => {
  it('go round the tenants, the one that was served longest ago first, the oldest of each', () => {
    const waiting = [
      waiter('a1', 'a', 1, 50),
      waiter('a2', 'a', 1, 40),
      waiter('b1', 'b', 1, 30),
      waiter('c1', 'c', 1, 20),
      waiter('b2', 'b', 1, 10),
    ];
    const servedAt = new Map([
      ['a', 2],
      ['b', 1],
    ]);
    expect(served(queueOf(waiting, { servedAt }), [host('h', 8)])).toEqual(['c1', 'b1', 'a1', 'b2', 'a2']);
    expect(served(queueOf([...waiting].reverse(), { servedAt }), [host('h', 2)])).toEqual(['c1', 'b1']);
  });

  it('let a small one pass a big one, until that has waited for long', () => {
    const hosts = [host('h', 4, { used: { cpus: 2, ram_mb: 0, storage_gb: 0, vm_count: 1 } })];
    const waiting = (ms: number) => queueOf([waiter('big', 'a', 4, ms), waiter('small', 'a', 1, 5)]);
    expect(served(waiting(OVERTAKE_MS - 1), hosts)).toEqual(['small']);
    expect(served(waiting(OVERTAKE_MS), hosts)).toEqual([]);
  });

  it('keep only hosts that the old one could ever take', () => {
    const full = { used: { cpus: 4, ram_mb: 0, storage_gb: 0, vm_count: 1 } };
    const hosts = [host('h1', 4, full), host('h2', 2)];
    expect(served(queueOf([waiter('big', 'a', 4, OVERTAKE_MS), waiter('small', 'b', 1, 5)]), hosts)).toEqual(['small']);
    const pinned = waiter('pinned', 'a', 4, OVERTAKE_MS, { host_id: 'h1' });
    expect(served(queueOf([pinned, waiter('small', 'b', 1, 5)]), hosts)).toEqual(['small']);
  });

  it('hold hosts in every other minute only, whoever waits', () => {
    const hosts = [host('h', 4, { used: { cpus: 2, ram_mb: 0, storage_gb: 0, vm_count: 1 } })];
    const bigOnes = ['a', 'b', 'c'].map((tenant, n) => waiter(`${tenant}1`, tenant, 4, OVERTAKE_MS * (9 - n)));
    const waiting = [...bigOnes, waiter('small', 'd', 1, 5)];
    const passes = Array.from({ length: 600 }, (_, second) =>
      served(queueOf(waiting, { atMs: second * 1_000 }), hosts),
    );
    for (const [second, ids] of passes.entries()) {
      const isHeld = Math.floor((second * 1_000) / HOLD_MS) % 2 === 0;
      expect(ids).toEqual(isHeld ? [] : ['small']);
    }
  });

  it('let one that room comes for have it, though another holds its hosts whose room never falls together', () => {
    const hosts = [host('h', 8, { used: { cpus: 3, ram_mb: 0, storage_gb: 0, vm_count: 1 } })];
    const waiting = [waiter('all', 'a', 8, OVERTAKE_MS * 3), waiter('most', 'b', 5, OVERTAKE_MS * 2)];
    const servedAt = new Map([['b', 1]]);
    const minutes = [0, 1, 2, 3, 4, 5, 6].map((minute) =>
      served(queueOf(waiting, { servedAt, atMs: minute * HOLD_MS }), hosts),
    );
    expect(minutes).toEqual([[], ['most'], [], ['most'], [], ['most'], ['most']]);
  });

  it('hold hosts from their own tenant alone where that’s are in the way', () => {
    const used: Capacity = { cpus: 2, ram_mb: 128, storage_gb: 1, vm_count: 1 };
    const hosts = [host('h', 8, { used })];
    const waiting = [waiter('big', 'a', 8, OVERTAKE_MS), waiter('mine', 'a', 1, 6), waiter('small', 'b', 1, 5)];
    const own = new Map([['a', new Map([['h', { ...used, cpus: 1 }]])]]);
    expect(served(queueOf(waiting), hosts)).toEqual([]);
    expect(served(queueOf(waiting, { own }), hosts)).toEqual(['small']);
    const newcomer = (tenant: string) =>
      schedule(waiter('', tenant, 1, 0).spec, leftOver(queueOf(waiting, { own }), hosts, 'spread', tenant).hosts).kind;
    expect(['a', 'b', 'c'].map(newcomer)).toEqual(['no_room', 'placed', 'placed']);
  });

  it('take for a tenant’s head whoever waits for room alone', () => {
    const hosts = [host('away', 8, { state: 'cordoned' }), host('h', 1)];
    const waiting = [
      waiter('a1', 'a', 1, 9, { host_id: 'away' }),
      waiter('a2', 'a', 1, 8),
      waiter('b1', 'b', 1, 7),
      waiter('b2', 'b', 1, 6),
    ];
    expect(served(queueOf(waiting, { servedAt: new Map([['b', 1]]) }), hosts)).toEqual(['a2']);
    expect(served(queueOf(waiting, { servedAt: new Map([['a', 1]]) }), hosts)).toEqual(['b1']);
  });

  it('pass whoever is over its quota, within its tenant only until that has waited for long', () => {
    const quotas = new Map<string, QuotaRoom>([['a', { cpus: 1, environments: 5 }]]);
    const waiting = (ms: number) => [waiter('a1', 'a', 2, ms), waiter('a2', 'a', 1, 8), waiter('b1', 'b', 1, 5)];
    expect(served(queueOf(waiting(10), { quotas }), [host('h', 8)])).toEqual(['b1', 'a2']);
    expect(served(queueOf(waiting(OVERTAKE_MS), { quotas }), [host('h', 8)])).toEqual(['b1']);
    const one = new Map<string, QuotaRoom>([['a', { environments: 1 }]]);
    expect(
      served(queueOf([waiter('a1', 'a', 1, 9), waiter('a2', 'a', 1, 8)], { quotas: one }), [host('h', 8)]),
    ).toEqual(['a1']);
  });

  it('leave to those that come anew what their tenant’s quotas have beyond those that wait', () => {
    const quotas = new Map<string, QuotaRoom>([['a', { environments: 1, cpus: 2 }]]);
    const left = (waiting: Waiter[], tenant: string) =>
      leftOver(queueOf(waiting, { quotas }), [host('h', 8)], 'spread', tenant);
    const fits = [waiter('a1', 'a', 1, 5), waiter('a2', 'a', 1, 4)];
    expect(left(fits, 'a').promised).toMatchObject({ environments: 1, cpus: 1 });
    expect(left(fits, 'b').promised).toMatchObject({ environments: 0, cpus: 0 });
    const newcomer = (waitedMs: number, tenant: string) =>
      schedule(waiter('', tenant, 1, 0).spec, left([waiter('a1', 'a', 3, waitedMs)], tenant).hosts).kind;
    expect(newcomer(OVERTAKE_MS - 1, 'a')).toBe('placed');
    expect(newcomer(OVERTAKE_MS, 'a')).toBe('no_room');
    expect(newcomer(OVERTAKE_MS, 'b')).toBe('placed');
  });

  it('leave to those that come anew what nobody waits for', () => {
    const left = leftOver(queueOf([waiter('a1', 'a', 3, 5)]), [host('h', 4)], 'spread', 'b').hosts;
    expect(schedule(waiter('', '', 1, 0).spec, left).kind).toBe('placed');
    expect(schedule(waiter('', '', 2, 0).spec, left)).toMatchObject({
      kind: 'no_room',
      hosts: [{ hostId: 'h', reason: 'has its room promised to others that wait' }],
    });
  });
});

interface Arrival {
  at: number;
  tenantId: string;
  cpus: number;
  lastsMs: number;
}

interface Simulated {
  order: { waiter: Waiter; arrival: Arrival; hostId: string; at: number }[];
  unserved: Waiter[];
}

const TENANTS = ['a', 'b', 'c', 'd'];
const STEP_MS = 1_000;
const LONGEST_MS = 30_000;

interface Running {
  hostId: string;
  tenantId: string;
  cpus: number;
  until: number;
}

const usedBy = (all: readonly Running[]): Capacity => ({
  cpus: all.reduce((sum, { cpus }) => sum + cpus, 0),
  ram_mb: 128 * all.length,
  storage_gb: all.length,
  vm_count: all.length,
});

function ownOf(running: readonly Running[]): Queue['own'] {
  const hostsOf = (tenant: string) =>
    new Set(running.filter((one) => one.tenantId === tenant).map((one) => one.hostId));
  const on = (tenant: string, hostId: string) =>
    usedBy(running.filter((one) => one.tenantId === tenant && one.hostId === hostId));
  const tenants = [...new Set(running.map(({ tenantId }) => tenantId))];
  return new Map(tenants.map((each) => [each, new Map([...hostsOf(each)].map((id) => [id, on(each, id)]))]));
}

/** As the queue is served in earnest: one at a time, from what waits then, whenever time goes on. */
function simulate(
  fleet: SchedulableHost[],
  arrivals: readonly Arrival[],
  endMs = (arrivals.length + 2) * (OVERTAKE_MS + LONGEST_MS + 4 * HOLD_MS) * TENANTS.length,
): Simulated {
  const hosts = fleet.map((one) => ({ ...one }));
  const servedAt = new Map<string, number>();
  const order: Simulated['order'] = [];
  let waiting = new Map<string, { arrival: Arrival; id: string }>();
  let running: Running[] = [];
  const pending = arrivals.map((arrival, n) => ({ arrival, id: `w${String(n).padStart(4, '0')}` }));
  const waiters = (now: number): Waiter[] =>
    [...waiting.values()].map(({ id, arrival }) => waiter(id, arrival.tenantId, arrival.cpus, now - arrival.at));
  for (let now = 0; now <= endMs && (pending.length > 0 || waiting.size > 0); now += STEP_MS) {
    running = running.filter(({ until }) => until > now);
    while (pending[0] !== undefined && pending[0].arrival.at <= now) {
      const next = pending.shift();
      if (next !== undefined) waiting.set(next.id, next);
    }
    if (
      pending.length === 0 &&
      running.length === 0 &&
      served(queueOf(waiters(now), { atMs: now }), fleet).length === 0
    )
      break;
    for (;;) {
      for (const each of hosts) {
        each.used = usedBy(running.filter(({ hostId }) => hostId === each.id));
        for (const key of KEYS) expect(each.used[key]).toBeLessThanOrEqual(each.capacity[key]);
      }
      const [turn] = turns(queueOf(waiters(now), { servedAt, own: ownOf(running), atMs: now }), hosts, 'spread');
      const found = turn === undefined ? undefined : waiting.get(turn.waiter.id);
      if (turn === undefined || found === undefined) break;
      waiting = new Map([...waiting].filter(([id]) => id !== found.id));
      const { cpus, lastsMs, tenantId } = found.arrival;
      running.push({ hostId: turn.placement.hostId, tenantId, cpus, until: now + lastsMs });
      if (turn.isHead) servedAt.set(tenantId, order.length + 1);
      order.push({ waiter: turn.waiter, arrival: found.arrival, hostId: turn.placement.hostId, at: now });
    }
  }
  return { order, unserved: waiters(endMs) };
}

const fleets = fc
  .array(fc.integer({ min: 1, max: 8 }), { minLength: 1, maxLength: 4 })
  .map((sizes) => sizes.map((cpus, index) => host(`host-${index}`, cpus)));
const arrivalsOf = (tenants: string[]) =>
  fc
    .array(
      fc.record({
        at: fc.integer({ min: 0, max: 40 }).map((steps) => steps * STEP_MS),
        tenantId: fc.constantFrom(...tenants),
        cpus: fc.constantFrom(1, 1, 1, 2, 4, 8),
        lastsMs: fc.integer({ min: 1, max: LONGEST_MS / STEP_MS }).map((steps) => steps * STEP_MS),
      }),
      { maxLength: 40 },
    )
    .map((list) => list.sort((a, b) => a.at - b.at));

describe('a queue of random tenants', () => {
  it('starves nobody that any host could take, overcommits nothing, and is first come first served among alike of a tenant', () => {
    fc.assert(
      fc.property(fleets, arrivalsOf(TENANTS), (fleet, arrivals) => {
        const { order, unserved } = simulate(fleet, arrivals);
        for (const one of unserved) expect(fleet.some((each) => wouldTakeWithRoom(one.spec, each))).toBe(false);
        for (const tenant of TENANTS)
          for (const cpus of [1, 2, 4, 8]) {
            const ids = order
              .filter(({ arrival }) => arrival.tenantId === tenant && arrival.cpus === cpus)
              .map((each) => each.waiter.id);
            expect(ids).toEqual([...ids].sort());
          }
      }),
      { numRuns: 500 },
    );
  });

  it('serves big ones among small ones of other tenants that never end coming, in the time that is promised', () => {
    const small = fc.integer({ min: 1, max: LONGEST_MS / STEP_MS }).map((steps) => steps * STEP_MS);
    const hosts = fc
      .array(fc.integer({ min: 2, max: 8 }), { minLength: 1, maxLength: 2 })
      .map((sizes) => sizes.map((cpus, index) => host(`host-${index}`, cpus)));
    const endMs = 15 * HOLD_MS;
    const load = fc.array(small, { minLength: endMs / STEP_MS, maxLength: endMs / STEP_MS }).map((all) =>
      all.map((lastsMs, step) => ({
        at: step * STEP_MS,
        tenantId: ['b', 'c', 'd'][step % 3] ?? '',
        cpus: 1,
        lastsMs,
      })),
    );
    const bigAt = fc.integer({ min: 0, max: 240 }).map((steps) => steps * STEP_MS);
    fc.assert(
      fc.property(hosts, load, bigAt, (fleet, many, at) => {
        const cpus = Math.max(...fleet.map(({ capacity }) => capacity.cpus));
        const big = { at, tenantId: 'a', cpus, lastsMs: STEP_MS };
        const arrivals = [...many, big].sort((a, b) => a.at - b.at);
        const { order } = simulate(fleet, arrivals, endMs);
        const servedAt = order.find(({ arrival }) => arrival === big)?.at ?? Number.POSITIVE_INFINITY;
        expect(servedAt - at).toBeLessThanOrEqual(OVERTAKE_MS + 5 * HOLD_MS);
      }),
      { numRuns: 8 },
    );
  }, 120_000);

  it('gives tenants that always wait the same number of turns, give or take one', () => {
    const backlog = fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 2, maxLength: 6 });
    fc.assert(
      fc.property(backlog, fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 5 }), (counts, cpus, steps) => {
        const lastsMs = steps * STEP_MS;
        const arrivals = counts.flatMap((count, tenant) =>
          Array.from({ length: count }, () => ({ at: 0, tenantId: `t${tenant}`, cpus: 1, lastsMs })),
        );
        const { order } = simulate([host('h', cpus)], arrivals);
        expect(order.length).toBe(arrivals.length);
        const had = counts.map(() => 0);
        for (const { arrival } of order) {
          const tenant = Number(arrival.tenantId.slice(1));
          had[tenant] = (had[tenant] ?? 0) + 1;
          const waits = counts.map((count, n) => ({ left: count - (had[n] ?? 0), had: had[n] ?? 0 }));
          const behind = Math.min(...waits.filter(({ left }) => left > 0).map((each) => each.had));
          const ahead = Math.max(...waits.map((each) => each.had));
          if (Number.isFinite(behind)) expect(ahead - behind).toBeLessThanOrEqual(1);
        }
      }),
      { numRuns: 500 },
    );
  });

  it('is not passed by those that come anew: whoever’s turn it is still fits', () => {
    const waiting = fc.array(
      fc.record({
        tenantId: fc.constantFrom(...TENANTS),
        cpus: fc.constantFrom(1, 2, 4, 8),
        waitedMs: fc.integer({ min: 0, max: 2 * OVERTAKE_MS }),
      }),
      { minLength: 1, maxLength: 12 },
    );
    const used = fc.array(fc.integer({ min: 0, max: 8 }), { minLength: 4, maxLength: 4 });
    fc.assert(
      fc.property(fleets, used, waiting, fc.constantFrom(1, 2, 4), (fleet, busy, list, cpus) => {
        const hosts = fleet.map((one, n) => ({
          ...one,
          used: { ...one.used, cpus: Math.min(one.capacity.cpus, busy[n] ?? 0) },
        }));
        const queue = queueOf(list.map((each, n) => waiter(`w${n}`, each.tenantId, each.cpus, each.waitedMs)));
        const first = served(queue, hosts)[0];
        const verdict = schedule(waiter('', '', cpus, 0).spec, leftOver(queue, hosts, 'spread', 'new').hosts);
        if (verdict.kind !== 'placed') return;
        const after = hosts.map((one) =>
          one.id === verdict.hostId ? { ...one, used: { ...one.used, cpus: one.used.cpus + cpus } } : one,
        );
        expect(served(queue, after)[0]).toBe(first);
        for (const one of after) expect(one.used.cpus).toBeLessThanOrEqual(one.capacity.cpus);
      }),
      { numRuns: 2_000 },
    );
  });
});

/**
 * Whose turn it is when room comes: pure, for environments and runs alike.
 *
 * - Within a tenant the oldest is first: its head, which is the oldest that waits for room alone, not for a host that is away. Tenants take turns: of their heads
 *   the one goes first whose tenant's former head was served longest ago. Whoever is not the head comes after all heads.
 * - Who does not fit is passed by who does. A head that has waited OVERTAKE_MS holds every host that would take it: none of its own tenant passes it there, and
 *   no other tenant's that comes after it, unless its own tenant's would be in its way if all others left. So many small ones never keep a big one out, and it
 *   holds up nobody that could not stand in its way.
 * - From other tenants hosts are held in every other minute (HOLD_MS) only, by the clock, whoever comes and goes: in those between, room is used by whoever fits. In every other
 *   of the minutes of holding they hold in the order of their turns, in the others those before one of them do not, each in turn: one whose room never falls
 *   together keeps out no other. While it holds first, a head is passed by each other tenant once at most. So among ever so many small ones that end within a
 *   minute a big one is served in OVERTAKE_MS + 5 × HOLD_MS, and 4 × HOLD_MS more for each other tenant that has waited as long.
 * - Who is over its tenant's quota holds up nobody else; once it has waited so long, nobody of its own tenant passes it either.
 * - Who comes anew gets what is left when all that wait have had theirs, of hosts and of its own tenant's quotas; nothing while one of its own waits so long for these.
 */
import type { Placed, PlacementSpec } from './placement.ts';
import { type PlacementPolicy, type SchedulableHost, schedule, type Usage, wouldTakeWithRoom } from './schedule.ts';

export const OVERTAKE_MS = 10_000;
export const HOLD_MS = 60_000;

export interface Waiter {
  id: string;
  tenantId: string;
  spec: PlacementSpec;
  /** Since it asked. */
  waitedMs: number;
}

/** What a tenant's quotas leave it; absent: no limit. */
export type QuotaRoom = Partial<Record<'environments' | 'cpus' | 'ram_mb' | 'storage_gb', number>>;

export interface Queue<W extends Waiter = Waiter> {
  /** Any order. */
  waiting: readonly W[];
  /** When a tenant's head was last served, in any unit; absent: never. */
  servedAt: ReadonlyMap<string, number>;
  quotas: ReadonlyMap<string, QuotaRoom>;
  /** What a tenant's environments have, by host; absent: nothing. */
  own: ReadonlyMap<string, ReadonlyMap<string, Usage>>;
  /** Of a clock that all processes share. */
  atMs: number;
}

interface Place<W extends Waiter> {
  waiter: W;
  isHead: boolean;
}

/** First all heads, then of each tenant the next, and so on; those that wait for a host that is away among the others of their tenant. */
function inTurn<W extends Waiter>({ waiting, servedAt }: Queue<W>, hosts: readonly SchedulableHost[]): Place<W>[] {
  const byTenant = new Map<string, W[]>();
  for (const waiter of [...waiting].sort(oldestFirst)) {
    const mine = byTenant.get(waiter.tenantId);
    if (mine === undefined) byTenant.set(waiter.tenantId, [waiter]);
    else mine.push(waiter);
  }
  const never = Number.NEGATIVE_INFINITY;
  // A stable sort: of two that were never served, the one whose oldest waits longer.
  const tenants = [...byTenant].sort(([a], [b]) => {
    const [one, other] = [servedAt.get(a) ?? never, servedAt.get(b) ?? never];
    return one === other ? 0 : one - other;
  });
  const rounds = tenants.map(([, mine]) => headFirst(mine, hosts));
  const depth = Math.max(0, ...rounds.map((mine) => mine.length));
  return Array.from({ length: depth }, (_, round) => rounds.flatMap((mine) => mine.slice(round, round + 1))).flat();
}

function headFirst<W extends Waiter>(mine: readonly W[], hosts: readonly SchedulableHost[]): Place<W>[] {
  const head = mine.find(({ spec }) => hosts.some((host) => wouldTakeWithRoom(spec, host)));
  const others = mine.filter((waiter) => waiter !== head).map((waiter) => ({ waiter, isHead: false }));
  return head === undefined ? others : [{ waiter: head, isHead: true }, ...others];
}

const oldestFirst = (a: Waiter, b: Waiter): number =>
  a.waitedMs === b.waitedMs ? (a.id < b.id ? -1 : 1) : b.waitedMs - a.waitedMs;

/** From which head on they hold hosts from other tenants now; undefined: nobody does. */
function firstToHold<W extends Waiter>({ atMs, quotas }: Queue<W>, order: readonly Place<W>[]): W | undefined {
  const minute = Math.floor(atMs / HOLD_MS);
  if (minute % 2 === 1) return undefined;
  const holders = order
    .filter(({ waiter, isHead }) => isHead && waiter.waitedMs >= OVERTAKE_MS)
    .map(({ waiter }) => waiter)
    .filter(({ spec, tenantId }) => !isOverQuota(spec, quotas.get(tenantId)));
  if (minute % 4 === 0) return holders[0];
  // By tenant, so that it stays the same one while others are served.
  return holders.sort((a, b) => (a.tenantId < b.tenantId ? -1 : 1))[Math.floor(minute / 4) % holders.length];
}

export interface Turn<W extends Waiter> {
  waiter: W;
  placement: Placed;
  /** Its tenant's turn, rather than what others leave. */
  isHead: boolean;
  /** As they were for it: with what is promised to those before it. */
  hosts: readonly SchedulableHost[];
}

type Needs = Record<(typeof QUOTA_KEYS)[number], number>;

/** What is left for one of this tenant that comes anew. */
export interface LeftOver {
  /** As they are for it. */
  hosts: SchedulableHost[];
  /** To those of its own tenant that wait: it counts as used. */
  promised: Needs;
}
type View = (tenantId: string) => LeftOver;

/** Each that gets room, in turn, as if those before it had taken theirs; returns the hosts with all that promised away. */
export function* turns<W extends Waiter>(
  queue: Queue<W>,
  hosts: readonly SchedulableHost[],
  policy: PlacementPolicy,
): Generator<Turn<W>, View> {
  const fleet = hosts.map((host) => ({ ...host }));
  const quotas = new Map([...queue.quotas].map(([tenant, room]) => [tenant, { ...room }]));
  /** Room only becomes less on the way: who is alike fares alike. */
  const unplaceable = new Set<string>();
  const overQuota = new Set<string>();
  /** By a tenant's head, from its own. */
  const kept = new Map<string, Set<string>>();
  const promised = new Map<string, Needs>();
  const view = (tenantId: string): SchedulableHost[] =>
    kept.has(tenantId)
      ? fleet.map((host) => (kept.get(tenantId)?.has(host.id) ? { ...host, promised: 'all' } : host))
      : fleet;
  const order = inTurn(queue, fleet);
  const first = firstToHold(queue, order);
  let isHolding = false;
  for (const { waiter, isHead } of order) {
    const { spec, tenantId } = waiter;
    isHolding ||= waiter === first;
    if (overQuota.has(tenantId)) continue;
    const isOld = waiter.waitedMs >= OVERTAKE_MS;
    if (isOverQuota(spec, quotas.get(tenantId))) {
      if (isOld) overQuota.add(tenantId);
      continue;
    }
    const alike = JSON.stringify(spec);
    const mine = view(tenantId);
    const placement = unplaceable.has(alike) ? undefined : schedule(spec, mine, policy);
    if (placement?.kind === 'placed') {
      yield { waiter, placement, isHead, hosts: mine };
      promise(spec, fleet, placement);
      take(spec, quotas.get(tenantId));
      promised.set(tenantId, sum(promised.get(tenantId) ?? NO_NEEDS, needs(spec)));
      continue;
    }
    if (mine === fleet) unplaceable.add(alike);
    if (!isOld || !isHead) continue;
    kept.set(tenantId, new Set(fleet.filter((host) => wouldTakeWithRoom(spec, host)).map(({ id }) => id)));
    const own = queue.own.get(tenantId);
    if (isHolding)
      for (const host of fleet) if (wouldTakeWithRoom(spec, host, own?.get(host.id))) host.promised = 'all';
  }
  return (tenantId) => ({
    hosts: overQuota.has(tenantId) ? fleet.map((host) => ({ ...host, promised: 'all' })) : view(tenantId),
    promised: promised.get(tenantId) ?? NO_NEEDS,
  });
}

/** What is left for those of this tenant that come anew. */
export function leftOver(
  queue: Queue,
  hosts: readonly SchedulableHost[],
  policy: PlacementPolicy,
  tenantId: string,
): LeftOver {
  const walk = turns(queue, hosts, policy);
  for (;;) {
    const { done, value } = walk.next();
    if (done === true) return value(tenantId);
  }
}

const NOTHING: Usage = { cpus: 0, ram_mb: 0, storage_gb: 0, vm_count: 0 };

function promise(spec: PlacementSpec, fleet: readonly SchedulableHost[], { hostId, gpus }: Placed): void {
  const host = fleet.find(({ id }) => id === hostId);
  if (host === undefined || host.promised === 'all') return;
  const before = host.promised ?? NOTHING;
  host.promised = {
    cpus: before.cpus + spec.cpus,
    ram_mb: before.ram_mb + spec.ram_mb,
    storage_gb: before.storage_gb + spec.storage_gb,
    vm_count: before.vm_count + 1,
    ...(gpus === undefined ? {} : { gpus: [...(before.gpus ?? []), gpus] }),
  };
}

const QUOTA_KEYS = ['environments', 'cpus', 'ram_mb', 'storage_gb'] as const;
const needs = ({ cpus, ram_mb, storage_gb }: PlacementSpec): Needs => ({ environments: 1, cpus, ram_mb, storage_gb });
export const NO_NEEDS: Needs = { environments: 0, cpus: 0, ram_mb: 0, storage_gb: 0 };

const sum = (one: Needs, other: Needs): Needs => ({
  environments: one.environments + other.environments,
  cpus: one.cpus + other.cpus,
  ram_mb: one.ram_mb + other.ram_mb,
  storage_gb: one.storage_gb + other.storage_gb,
});

const isOverQuota = (spec: PlacementSpec, room: QuotaRoom = {}): boolean =>
  QUOTA_KEYS.some((key) => needs(spec)[key] > (room[key] ?? Number.POSITIVE_INFINITY));

function take(spec: PlacementSpec, room: QuotaRoom | undefined): void {
  for (const key of QUOTA_KEYS) {
    const left = room?.[key];
    if (room !== undefined && left !== undefined) room[key] = left - needs(spec)[key];
  }
}

/** One of those that wait for room gets it: whose turn it is, in one transaction. */
import { sql } from 'kysely';
import type { Tx } from '../db/db.ts';
import type { EnvironmentContext } from '../environments/environment-context.ts';
import type { EnvironmentService } from '../environments/environment-service.ts';
import { readFleet } from '../environments/queueing/fleet.ts';
import { readQueue } from '../environments/queueing/read-queue.ts';
import { standingOf } from '../environments/queueing/standing.ts';
import { type Taken, takePlace } from '../environments/queueing/take-place.ts';
import type { Waiting } from '../environments/queueing/waiting.ts';
import { lockAllLimits } from '../quotas/quota-store.ts';
import { type AdmittedRun, admitQueued } from '../runs/queue-admission.ts';
import type { SchedulableHost } from '../scheduling/schedule.ts';
import { type Queue, type Turn, turns } from '../scheduling/turns.ts';

export interface ServeContext {
  context: EnvironmentContext;
  environments: EnvironmentService;
}

/** Who drives a run that gets room; absent: this process drives no more. */
export interface RunHolder {
  owner: string;
  leaseMs: number;
}

export type Served = ({ kind: 'run' } & AdmittedRun) | ({ kind: 'environment' } & Taken);

const ADVISORY_LOCK = 4_711_200_002;

/** One process hands out room at a time, else the order would be nobody's. False: another one is at it, and will see what we have seen. */
async function tryLockQueue(tx: Tx): Promise<boolean> {
  const { rows } = await sql<{ locked: boolean }>`
    select pg_try_advisory_xact_lock(${ADVISORY_LOCK}::bigint) as locked`.execute(tx);
  return rows[0]?.locked === true;
}

/** `busy`: another process serves the queue just now, or it changed while it was looked at. Undefined: nobody that waits fits. */
export function serveNext(serving: ServeContext, holder: RunHolder | undefined): Promise<Served | 'busy' | undefined> {
  const { context } = serving;
  return context.db.transaction(async (tx) => {
    if (!(await tryLockQueue(tx))) return 'busy';
    const seen = await readFleet(context, tx, false);
    const queue = await readQueue(tx, { withRuns: holder !== undefined, hosts: seen });
    if (queue.waiting.length === 0) return undefined;
    const next = nextTenants({ ...queue, ...(await standingOf(tx, queue.waiting)) }, seen, context);
    if (next.size === 0) return undefined;
    await lockAllLimits(tx, next); // before hosts: so all is looked at again
    const hosts = await readFleet(context, tx, true);
    const standing = await standingOf(tx, queue.waiting);
    for (const turn of turns({ ...queue, ...standing }, hosts, context.placementPolicy)) {
      if (!next.has(turn.waiter.tenantId)) return 'busy'; // somebody's change has just made it its turn
      const served = await serve(serving, tx, turn, holder);
      if (served === undefined) continue; // gone from the queue meanwhile
      if (turn.isHead) await noteServed(tx, turn.waiter.tenantId);
      return served;
    }
    return undefined;
  });
}

/** More than one, for those that are gone from the queue meanwhile. */
const MAX_NEXT_TURNS = 10;

/** Whose turns are next. */
function nextTenants(
  queue: Queue<Waiting>,
  hosts: readonly SchedulableHost[],
  { placementPolicy }: EnvironmentContext,
): Set<string> {
  const next = new Set<string>();
  let count = 0;
  for (const { waiter } of turns(queue, hosts, placementPolicy)) {
    next.add(waiter.tenantId);
    count += 1;
    if (count === MAX_NEXT_TURNS) break;
  }
  return next;
}

async function serve(
  { context, environments }: ServeContext,
  tx: Tx,
  { waiter, placement, hosts }: Turn<Waiting>,
  holder: RunHolder | undefined,
): Promise<Served | undefined> {
  if (waiter.kind === 'environment') {
    const taken = await takePlace(context, tx, waiter.id, placement);
    return taken === undefined ? undefined : { kind: 'environment', ...taken };
  }
  if (holder === undefined) return undefined;
  const admitted = await admitQueued(environments, tx, { runId: waiter.id, fleet: hosts, ...holder });
  return admitted === undefined ? undefined : { kind: 'run', ...admitted };
}

/** The tenant's next turn comes after everybody else's. */
async function noteServed(tx: Tx, tenantId: string): Promise<void> {
  await tx
    .updateTable('tenants')
    .set({ queue_served_at: sql<Date>`clock_timestamp()` })
    .where('id', '=', tenantId)
    .execute();
}

/** The hosts as the scheduler sees them. */
import type { Queryable, Tx } from '../../db/db.ts';
import { hostsForPlacement, toSchedulable } from '../../hosts/host-store.ts';
import type { SchedulableHost } from '../../scheduling/schedule.ts';
import { type LeftOver, leftOver, NO_NEEDS, turns } from '../../scheduling/turns.ts';
import type { EnvironmentContext } from '../environment-context.ts';
import { usedByHost } from '../environment-store.ts';
import { readQueue } from './read-queue.ts';
import { standingOf } from './standing.ts';
import { anyWaiting } from './waiting.ts';

type FleetContext = Pick<EnvironmentContext, 'hostStaleMs' | 'placementPolicy'>;

/** With `lock` it stays so until the transaction ends, but for what that itself does. */
export async function readFleet(context: FleetContext, db: Queryable, lock: boolean): Promise<SchedulableHost[]> {
  const hosts = await hostsForPlacement(db, context.hostStaleMs, lock);
  const used = await usedByHost(db);
  return hosts.map((host) => toSchedulable(host, used.get(host.id)));
}

/** Locked, for whoever of this tenant comes anew: what those that wait already could take is promised to them. `afterRuns`: all of it, if that is a run. */
export async function fleetForNewcomers(
  context: FleetContext,
  tx: Tx,
  { tenantId, afterRuns = false }: { tenantId: string; afterRuns?: boolean },
): Promise<LeftOver> {
  const hosts = await readFleet(context, tx, true);
  if (!(await anyWaiting(tx))) return { hosts, promised: NO_NEEDS };
  const waits = await readQueue(tx, { withRuns: true, hosts });
  const queue = { ...waits, ...(await standingOf(tx, waits.waiting)) };
  if (afterRuns)
    for (const { waiter } of turns(queue, hosts, context.placementPolicy))
      if (waiter.kind === 'run')
        return { hosts: hosts.map((host) => ({ ...host, promised: 'all' })), promised: NO_NEEDS };
  return leftOver(queue, hosts, context.placementPolicy, tenantId);
}

/** The hosts as the scheduler sees them. */
import type { Queryable, Tx } from '../../db/db.ts';
import { hostsForPlacement, toSchedulable } from '../../hosts/host-store.ts';
import type { SchedulableHost } from '../../scheduling/schedule.ts';
import { leftOver } from '../../scheduling/turns.ts';
import type { EnvironmentContext } from '../environment-context.ts';
import { usedByHost } from '../environment-store.ts';
import { anyWaiting, quotaRooms, readQueue } from './waiting.ts';

type FleetContext = Pick<EnvironmentContext, 'hostStaleMs' | 'placementPolicy'>;

/** With `lock` it stays so until the transaction ends, but for what that itself does. */
export async function readFleet(context: FleetContext, db: Queryable, lock: boolean): Promise<SchedulableHost[]> {
  const hosts = await hostsForPlacement(db, context.hostStaleMs, lock);
  const used = await usedByHost(db);
  return hosts.map((host) => toSchedulable(host, used.get(host.id)));
}

/** Locked, for whoever comes anew: what those that wait already could take is promised to them. */
export async function fleetForNewcomers(context: FleetContext, tx: Tx): Promise<SchedulableHost[]> {
  const hosts = await readFleet(context, tx, true);
  if (!(await anyWaiting(tx))) return hosts;
  const queue = await readQueue(tx, { withRuns: true });
  const quotas = await quotaRooms(tx, queue.waiting);
  return leftOver({ ...queue, quotas }, hosts, context.placementPolicy);
}

/**
 * A host that its operator declares lost: what was on it ends, in one transaction with that, and its room with it. Nothing is asked of the host. Should it come back, its VMs are
 * of environments that are gone, and the reconciler destroys them.
 */
import type { Tx } from '../db/db.ts';
import { isGone } from '../environments/environment.ts';
import { transition } from '../environments/environment-store.ts';
import { endLostRun } from '../runs/run-store.ts';
import { loseHost as loseSnapshots } from '../snapshots/lost-snapshots.ts';
import { setLost } from './host-states.ts';
import { lockHost } from './host-store.ts';

/** Of environments, and of the runs in them, so that they are told apart from a VM that died. */
export const hostLostReason = (hostId: string): string => `host ${hostId} was declared lost`;

/** False: there is no such host. May be repeated. */
export async function loseHost(tx: Tx, hostId: string, runRetentionMs: number): Promise<boolean> {
  const host = await lockHost(tx, hostId);
  if (host === undefined) return false;
  if (host.lost_at === null) await setLost(tx, hostId);
  await loseSnapshots(tx, hostId);
  const message = hostLostReason(hostId);
  const runs = await tx
    .selectFrom('runs')
    .innerJoin('environments', 'environments.uid', 'runs.environment_uid')
    .select(['runs.id', 'runs.state'])
    .where('environments.host_id', '=', hostId)
    .where('runs.finished_at', 'is', null)
    .orderBy('runs.id')
    .forUpdate('runs')
    .execute();
  for (const run of runs) await endLostRun(tx, run, { retentionMs: runRetentionMs, message });
  const rows = await tx
    .selectFrom('environments')
    .selectAll()
    .where('host_id', '=', hostId)
    .where('gone_at', 'is', null)
    .orderBy('uid')
    .forUpdate()
    .execute();
  for (const row of rows) {
    if (isGone(row.state)) continue;
    // One that was being destroyed is that.
    await transition(tx, row, row.state === 'destroying' ? 'destroyed' : 'failed', message);
  }
  return true;
}

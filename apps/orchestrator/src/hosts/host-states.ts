/** How a host's row changes: by what it says, by its silence, by its operator. Each change of the state that is shown is an event. */
import { isDeepStrictEqual } from 'node:util';
import type { HostCapacityReport, HostImage } from '@fuse/host-protocol';
import { sql } from 'kysely';
import { channels, jsonb, notify, now, type Tx } from '../db/db.ts';
import type { HostRow } from '../db/schema.ts';
import { recordEvent } from '../events/events.ts';
import { AMOUNTS, measuredCapacity, measuredGpus, type ShownState, shownState } from './host.ts';
import { lockHost } from './host-store.ts';

export interface Heartbeat {
  report: HostCapacityReport;
  images: HostImage[];
}

/** What it said when it was last asked; of one that was unreachable, that it is back. False when it is not registered any more. */
export async function recordHeartbeat(tx: Tx, hostId: string, { report, images }: Heartbeat): Promise<boolean> {
  const row = await lockHost(tx, hostId);
  if (row === undefined) return false;
  const capacity = measuredCapacity(row, report);
  const gpus = measuredGpus(row, report);
  await tx
    .updateTable('hosts')
    .set({
      ...capacity,
      gpu_capacity: jsonb(gpus),
      last_seen: now,
      unreachable_at: null,
      backend: report.backend,
      arch: report.arch,
      images: jsonb(images),
      templates: jsonb(report.templates),
      free_storage_gb: report.free_storage_gb,
      no_network: report.no_network ?? null,
    })
    .where('id', '=', hostId)
    .execute();
  if (row.unreachable_at !== null) await recordHostState(tx, hostId, shownState({ ...row, unreachable_at: null }));
  else if (
    AMOUNTS.some((key) => capacity[key] > row[key]) ||
    !isDeepStrictEqual(gpus, row.gpu_capacity) ||
    (row.no_network !== null && report.no_network === undefined)
  )
    await notify(tx, channels.capacity);
  return true;
}

/** It was not heard of for `staleMs`: from now on it is shown as unreachable. False when it was heard of after all, or is that already. */
export async function markUnreachable(tx: Tx, hostId: string, staleMs: number): Promise<boolean> {
  const row = await tx
    .updateTable('hosts')
    .set({ unreachable_at: now })
    .where('id', '=', hostId)
    .where('unreachable_at', 'is', null)
    .where('lost_at', 'is', null)
    .where(sql<boolean>`last_seen <= now() - ${staleMs}::float8 * interval '1 millisecond'`)
    .returningAll()
    .executeTakeFirst();
  if (row === undefined) return false;
  await recordHostState(tx, hostId, shownState(row));
  return true;
}

/** What its operator chose, which takes back that it is lost. */
export async function setHostState(tx: Tx, id: string, state: HostRow['state']): Promise<boolean> {
  const row = await tx
    .updateTable('hosts')
    .set({ state, ...(state === 'active' ? { lost_at: null } : {}), updated_at: now })
    .where('id', '=', id)
    .returningAll()
    .executeTakeFirst();
  if (row === undefined) return false;
  await recordHostState(tx, id, shownState(row));
  return true;
}

export async function setLost(tx: Tx, id: string): Promise<void> {
  await tx.updateTable('hosts').set({ lost_at: now, updated_at: now }).where('id', '=', id).execute();
  await recordHostState(tx, id, 'lost');
}

async function recordHostState(tx: Tx, id: string, state: ShownState): Promise<void> {
  await recordEvent(tx, { subjectKind: 'host', subjectId: id, kind: 'state', data: { state } });
  await notify(tx, channels.capacity);
}

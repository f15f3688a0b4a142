/** `GET /v1/environments/{id}/placement`. */
import { AppError, type PlacementReport } from '@fuse/contract';
import { place } from './admission.ts';
import type { EnvironmentContext } from './environment-context.ts';
import { environmentById, lastGone } from './environment-store.ts';
import { explanationOf, reportOf } from './placement-report.ts';
import { wantedByRow } from './queueing/waiting.ts';

/** Of one that waits: as the hosts are now. */
export async function placementOf(context: EnvironmentContext, tenantId: string, id: string): Promise<PlacementReport> {
  const { query } = context.db;
  const row = (await environmentById(query, tenantId, id)) ?? (await lastGone(query, tenantId, id));
  if (row === undefined) throw new AppError('not_found', `vm ${id} not found`);
  if (row.queue_deadline !== null) {
    const { hostId: _, ...now } = explanationOf(await place(context, query, await wantedByRow(query, row)));
    const message = now.message ?? row.placement?.reason ?? 'others are first';
    return reportOf({ ...now, message }, new Date().toISOString());
  }
  const { host_id, created_at } = row;
  // One that was placed before this was written down.
  return row.placement ?? { ...(host_id === null ? {} : { host_id }), at: created_at.toISOString(), hosts: [] };
}

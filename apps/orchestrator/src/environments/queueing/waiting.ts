/** Who waits for room: runs and environments together, as they are in their rows. */
import type { EnvironmentSpec, NetworkPolicy } from '@fuse/contract';
import { sql } from 'kysely';
import type { Queryable } from '../../db/db.ts';
import type { EnvironmentRow } from '../../db/schema.ts';
import type { PlacementSpec } from '../../scheduling/placement.ts';
import type { Waiter } from '../../scheduling/turns.ts';
import { snapshotById } from '../../snapshots/snapshot-store.ts';
import { effectiveSpec } from '../environment.ts';

export interface Waiting extends Waiter {
  kind: 'run' | 'environment';
}

export const waitingRun = sql`state = 'queued' and queue_deadline > now()`;
export const waitingEnvironment = sql`state = 'provisioning' and queue_deadline > now()`;

export async function anyWaiting(db: Queryable): Promise<boolean> {
  const { rows } = await sql<{ any: boolean }>`
    select exists (select from runs where ${waitingRun}) or exists (select from environments where ${waitingEnvironment}) as any`.execute(
    db,
  );
  return rows[0]?.any === true;
}

/** How many of this tenant wait, counted up to `limit`. */
export async function countWaiting(db: Queryable, tenantId: string, limit: number): Promise<number> {
  const { rows } = await sql<{ count: number }>`
    select count(*)::int as count from (
      (select from runs where ${waitingRun} and tenant_id = ${tenantId} limit ${limit})
      union all (select from environments where ${waitingEnvironment} and tenant_id = ${tenantId} limit ${limit})) as waiting`.execute(
    db,
  );
  return rows[0]?.count ?? 0;
}

/** Until the next one that waits has to be given up; negative when one is overdue, undefined when nothing waits. */
export async function nextDeadlineInMs(db: Queryable): Promise<number | undefined> {
  const { rows } = await sql<{ ms: number | null }>`
    select (extract(epoch from least(
      (select min(queue_deadline) from runs where state = 'queued'),
      (select min(queue_deadline) from environments where queue_deadline is not null)
    ) - now()) * 1000)::float8 as ms`.execute(db);
  return rows[0]?.ms ?? undefined;
}

/** What it wants, as its row has it. */
export type WantingRow = Pick<EnvironmentRow, 'image' | 'cpus' | 'ram_mb' | 'storage_gb'> & {
  /** Of environments. */
  spec: EnvironmentSpec | null;
  network: NetworkPolicy;
  seed: { id: string; host_id: string | null; arch: string; is_exported: boolean } | null;
};

/** Of one that waits. */
export async function wantedByRow(db: Queryable, row: EnvironmentRow): Promise<PlacementSpec> {
  const snapshot = row.seed_snapshot_id === null ? undefined : await snapshotById(db, row.seed_snapshot_id);
  const seed =
    snapshot === undefined
      ? null
      : {
          id: snapshot.id,
          host_id: snapshot.host_id,
          arch: snapshot.arch,
          is_exported: snapshot.manifest_key !== null,
        };
  return placementSpecOf({ ...row, seed });
}

export function placementSpecOf({ spec, image, cpus, ram_mb, storage_gb, network, seed }: WantingRow): PlacementSpec {
  const shape = { image, cpus, ram_mb, storage_gb, network: network.egress !== 'none' };
  if (spec === null) return shape;
  const wanted = { ...effectiveSpec(spec), ...shape };
  if (seed === null) return wanted;
  const { id: snapshotId, host_id: hostId, arch, is_exported: isExported } = seed;
  return { ...wanted, arch, seed: { snapshotId, hostId, isExported } };
}

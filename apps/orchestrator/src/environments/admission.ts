/** Scheduling, reservation and the row itself, in one transaction that holds every host's row: admissions go one by one. */
import { AppError, type EnvironmentSpec } from '@fuse/contract';
import { newId } from '@fuse/runtime';
import type { Queryable, Tx } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { hostsForPlacement, toSchedulable } from '../hosts/host-store.ts';
import type { Placement, PlacementSpec, Rejection } from '../scheduling/placement.ts';
import { obstacleToResume, schedule } from '../scheduling/schedule.ts';
import { effectiveSpec } from './environment.ts';
import type { EnvironmentContext } from './environment-context.ts';
import {
  environmentById,
  environmentByUid,
  type Interior,
  insertEnvironment,
  type Lifetime,
  usedByHost,
} from './environment-store.ts';

export interface Seed {
  snapshotId: string;
  /** Where its bytes are. */
  hostId: string | null;
  arch: string;
  /** In the object store too: any host may start it. */
  isExported: boolean;
  fallback: 'disk' | undefined;
}

export interface Admission {
  tenantId: string;
  taskId: string;
  /** As in the API; defaults are applied here. */
  spec: EnvironmentSpec;
  env: Record<string, string>;
  lifetime?: Lifetime;
  interior?: Interior;
  /** Instead of a template; the caller holds the snapshot's row. */
  seed?: Seed;
  runId?: string;
  /** Chosen by the caller who must know it before. */
  uid?: string;
}

export type Admitted = { kind: 'admitted'; environment: EnvironmentRow } | Rejection;

export async function admit(context: EnvironmentContext, tx: Tx, admission: Admission): Promise<Admitted> {
  const effective = effectiveSpec(admission.spec);
  const id = `${context.vmPrefix}${admission.taskId}`;
  const { seed } = admission;
  const placement = await place(
    context,
    tx,
    seed === undefined ? effective : { ...effective, arch: seed.arch, seed },
    true,
  );
  // A run's id is new, and so is its environment's.
  const taken = admission.runId === undefined ? await environmentById(tx, admission.tenantId, id) : undefined;
  if (taken !== undefined) throw taskConflict(taken);
  if (placement.kind !== 'placed') return placement;
  const environment = await insertEnvironment(tx, context.sealer, {
    uid: admission.uid,
    id,
    tenantId: admission.tenantId,
    taskId: admission.taskId,
    vmId: newId('vm'),
    hostId: placement.hostId,
    spec: admission.spec,
    effective,
    env: admission.env,
    lifetime: admission.lifetime ?? {},
    interior: admission.interior ?? {},
    seed,
    runId: admission.runId,
    leaseOwner: context.owner,
    leaseMs: context.startLeaseMs,
  });
  return { kind: 'admitted', environment };
}

/** With `lock` the answer holds until the transaction ends. */
export async function place(
  context: EnvironmentContext,
  db: Queryable,
  spec: PlacementSpec,
  lock = false,
): Promise<Placement> {
  const hosts = await hostsForPlacement(db, context.hostStaleMs, lock);
  const used = await usedByHost(db);
  return schedule(
    spec,
    hosts.map((host) => toSchedulable(host, used.get(host.id))),
    context.placementPolicy,
  );
}

/**
 * Before the compare-and-set that takes `row` out of `paused`, in its transaction: throws `unavailable` when its host has no room for its cpus,
 * memory and slot. Says nothing when the row changed since it was read: it may itself be what fills the host, and the compare-and-set fails.
 */
export async function requireRoomToResume(
  context: Pick<EnvironmentContext, 'hostStaleMs'>,
  tx: Tx,
  row: EnvironmentRow,
): Promise<void> {
  const hosts = await hostsForPlacement(tx, context.hostStaleMs, true);
  if ((await environmentByUid(tx, row.uid))?.version !== row.version) return;
  const host = hosts.find(({ id }) => id === row.host_id);
  const used = await usedByHost(tx);
  const obstacle =
    host === undefined ? 'is not registered' : obstacleToResume(row, toSchedulable(host, used.get(host.id)));
  if (obstacle === undefined) return;
  const hostId = row.host_id ?? '';
  const message = `vm ${row.id} stays paused: its host "${hostId}" ${obstacle}`;
  throw rejectionError({ kind: 'no_room', message, reasons: [{ hostId, reason: obstacle }] });
}

const TASK_CONFLICT = 'task_assigned';

function taskConflict(taken: EnvironmentRow): AppError {
  return new AppError('conflict', `task already assigned: task ${taken.task_id} already assigned to vm ${taken.id}`, {
    details: { field: 'task_id', reason: TASK_CONFLICT, state: taken.state },
    hint: 'Choose another task_id, or destroy that environment first.',
  });
}

/** The task's former environment is on its way out: admission may be tried again once it is gone. */
export const isConflictWithDying = (error: unknown): boolean =>
  error instanceof AppError && error.details?.reason === TASK_CONFLICT && error.details.state === 'destroying';

const MAX_REASONS = 5;

/** Of the first hosts, what stands in the way. */
function whyOf({ reasons }: Rejection): { hosts?: string } {
  if (reasons.length === 0) return {};
  const told = reasons.slice(0, MAX_REASONS).map(({ hostId, reason }) => `${hostId} ${reason}`);
  const more = reasons.length - told.length;
  return { hosts: `${told.join('; ')}${more === 0 ? '' : `; and ${more} more`}` };
}

export function rejectionError(rejection: Rejection): AppError {
  if (rejection.kind === 'no_such_host')
    return new AppError('not_found', rejection.message, { details: { field: 'spec.host_id' } });
  if (rejection.kind === 'impossible')
    return new AppError('unavailable', rejection.message, {
      details: { reason: 'impossible', ...whyOf(rejection) },
      hint: rejection.hint ?? 'No registered host could ever take it: ask for less, or register a host that fits.',
    });
  return new AppError('unavailable', rejection.message, {
    details: { reason: 'no_room', ...whyOf(rejection) },
    hint: rejection.hint ?? 'Try again when other environments have gone.',
    retryAfterSeconds: 5,
  });
}

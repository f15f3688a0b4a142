/** Scheduling, reservation and the row itself, in one transaction that holds every host's row: admissions go one by one. */
import { AppError, type EnvironmentSpec, type NetworkPolicy, NO_NETWORK } from '@fuse/contract';
import { newId } from '@fuse/runtime';
import { channels, notify, type Queryable, type Tx } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { type Excess, quotaExceeded } from '../quotas/quotas.ts';
import { overReservation, requireNotOver } from '../quotas/take-quota.ts';
import type { Judgement, Placement, PlacementSpec, Rejection } from '../scheduling/placement.ts';
import { obstacleToResume, type SchedulableHost, schedule } from '../scheduling/schedule.ts';
import { effectiveSpec } from './environment.ts';
import type { EnvironmentContext } from './environment-context.ts';
import {
  environmentById,
  environmentByUid,
  type Interior,
  insertEnvironment,
  type Lifetime,
  type NewEnvironment,
} from './environment-store.ts';
import { explanationOf, placementColumn } from './placement-report.ts';
import { fleetForNewcomers, readFleet } from './queueing/fleet.ts';
import { countWaiting } from './queueing/waiting.ts';

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
  labels?: Record<string, string> | undefined;
  /** Absent: none. */
  network?: NetworkPolicy;
  lifetime?: Lifetime;
  interior?: Interior;
  /** Instead of a template; the caller holds the snapshot's row. */
  seed?: Seed;
  runId?: string;
  /** Not before any run that waits and fits: it would take the last driver. */
  afterRuns?: boolean;
  /** The API key that asks for it. */
  keyId?: string | undefined;
  /** Chosen by the caller who must know it before. */
  uid?: string;
}

/** Its tenant holds as much as it may: others of its own must go first. */
export interface OverQuota {
  kind: 'over_quota';
  excess: Excess;
}

export type Admitted = { kind: 'admitted'; environment: EnvironmentRow } | Rejection | OverQuota;

/**
 * Without `fleet`: what those that wait leave over. Who serves them passes the hosts, locked, with what is promised to others, and has locked the
 * limits of the tenants.
 */
export async function admit(
  context: EnvironmentContext,
  tx: Tx,
  admission: Admission,
  fleet?: readonly SchedulableHost[],
): Promise<Admitted> {
  const reservation = reservationOf(admission);
  let over = await overReservation(tx, admission.tenantId, reservation);
  const left = fleet === undefined ? await fleetForNewcomers(context, tx, admission) : undefined;
  if (left !== undefined) over ??= await overReservation(tx, admission.tenantId, reservation, left.promised);
  const placement = schedule(wantedBy(admission), fleet ?? left?.hosts ?? [], context.placementPolicy);
  await requireFreeTask(context, tx, admission);
  if (over === 'disabled') return { kind: 'no_room', message: `tenant ${admission.tenantId} is disabled`, hosts: [] };
  if (over !== undefined && placement.kind !== 'impossible' && placement.kind !== 'no_such_host')
    return { kind: 'over_quota', excess: over };
  if (placement.kind !== 'placed') return placement;
  const environment = await insertEnvironment(tx, context.sealer, {
    ...rowOf(context, admission),
    hostId: placement.hostId,
    gpus: placement.gpus,
    placement: placementColumn(explanationOf(placement)),
    lease: { owner: context.owner, ms: context.startLeaseMs },
  });
  return { kind: 'admitted', environment };
}

/** Of one tenant, runs and environments together. */
const MAX_WAITING = 10_000;

/**
 * In place of what `admit` refused: the row, `provisioning` and without a host, waits for room. `isAwaited`: somebody in this process does too, and holds
 * its lease for as long.
 */
export async function enqueue(
  context: EnvironmentContext,
  tx: Tx,
  admission: Admission,
  {
    refused,
    timeoutSeconds,
    isAwaited,
  }: { refused: Rejection | OverQuota; timeoutSeconds: number; isAwaited: boolean },
): Promise<EnvironmentRow> {
  await requirePlaceInQueue(tx, admission.tenantId);
  const row = await insertEnvironment(tx, context.sealer, {
    ...rowOf(context, admission),
    hostId: null,
    placement: placementColumn(
      refused.kind === 'over_quota' ? { hosts: [], message: rejectionError(refused).message } : explanationOf(refused),
    ),
    queueTimeoutMs: timeoutSeconds * 1_000,
    ...(isAwaited ? { lease: { owner: context.owner, ms: context.startLeaseMs } } : {}),
  });
  await notify(tx, channels.capacity);
  return row;
}

/** Refuses what would make the queue of its tenant too long. */
export async function requirePlaceInQueue(tx: Tx, tenantId: string): Promise<void> {
  if ((await countWaiting(tx, tenantId, MAX_WAITING)) < MAX_WAITING) return;
  throw new AppError('unavailable', `${MAX_WAITING} environments and runs of this tenant wait for room already`, {
    details: { reason: 'queue_full' },
    hint: 'Try again when some of them have got it.',
    retryAfterSeconds: 5,
  });
}

/** Where it may go, and what it needs there. */
export function wantedBy({
  spec,
  seed,
  network = NO_NETWORK,
}: Pick<Admission, 'spec' | 'seed' | 'network'>): PlacementSpec {
  const effective = { ...effectiveSpec(spec), network: network.egress !== 'none' };
  return seed === undefined ? effective : { ...effective, arch: seed.arch, seed };
}

function reservationOf({ spec }: Admission) {
  const { cpus, ram_mb, storage_gb } = effectiveSpec(spec);
  return { environments: 1, cpus, ram_mb, storage_gb };
}

const idOf = (context: EnvironmentContext, { taskId }: Admission): string => `${context.vmPrefix}${taskId}`;

async function requireFreeTask(context: EnvironmentContext, tx: Tx, admission: Admission): Promise<void> {
  if (admission.runId !== undefined) return; // a run's id is new, and so is its environment's
  const taken = await environmentById(tx, admission.tenantId, idOf(context, admission));
  if (taken !== undefined) throw taskConflict(taken);
}

function rowOf(context: EnvironmentContext, admission: Admission): Omit<NewEnvironment, 'hostId' | 'placement'> {
  return {
    uid: admission.uid,
    id: idOf(context, admission),
    tenantId: admission.tenantId,
    taskId: admission.taskId,
    vmId: newId('vm'),
    spec: admission.spec,
    effective: effectiveSpec(admission.spec),
    env: admission.env,
    labels: admission.labels ?? {},
    network: admission.network ?? NO_NETWORK,
    lifetime: admission.lifetime ?? {},
    interior: admission.interior ?? {},
    seed: admission.seed,
    runId: admission.runId,
    keyId: admission.keyId,
  };
}

/** What the scheduler says now; reserves nothing. */
export async function place(context: EnvironmentContext, db: Queryable, spec: PlacementSpec): Promise<Placement> {
  return schedule(spec, await readFleet(context, db, false), context.placementPolicy);
}

/**
 * Before the compare-and-set that takes `row` out of `paused`, in its transaction: throws `unavailable` when its host has no room for its cpus,
 * memory and slot, `quota_exceeded` when its tenant may have no more. Says nothing when the row changed since it was read: it may itself be what fills
 * either, and the compare-and-set fails.
 */
export async function requireRoomToResume(
  context: Pick<EnvironmentContext, 'hostStaleMs' | 'placementPolicy'>,
  tx: Tx,
  row: EnvironmentRow,
): Promise<void> {
  const over = await overReservation(tx, row.tenant_id, { cpus: row.cpus, ram_mb: row.ram_mb });
  const hosts = await readFleet(context, tx, true);
  if ((await environmentByUid(tx, row.uid))?.version !== row.version) return;
  requireNotOver(over, row.tenant_id);
  const host = hosts.find(({ id }) => id === row.host_id);
  const obstacle = host === undefined ? 'is not registered' : obstacleToResume(row, host);
  if (obstacle === undefined) return;
  const hostId = row.host_id ?? '';
  const message = `vm ${row.id} stays paused: its host "${hostId}" ${obstacle}`;
  throw rejectionError({ kind: 'no_room', message, hosts: [{ hostId, reason: obstacle }] });
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
export function whyOf(hosts: readonly Judgement[]): { hosts?: string } {
  if (hosts.length === 0) return {};
  const told = hosts.slice(0, MAX_REASONS).map(({ hostId, reason = 'could take it' }) => `${hostId} ${reason}`);
  const more = hosts.length - told.length;
  return { hosts: `${told.join('; ')}${more === 0 ? '' : `; and ${more} more`}` };
}

/** `mayWait`: what was asked for can be asked for with a queue timeout. */
export function rejectionError(rejection: Rejection | OverQuota, options?: { mayWait: boolean }): AppError {
  if (rejection.kind === 'over_quota') return quotaExceeded(rejection.excess, options);
  if (rejection.kind === 'no_such_host')
    return new AppError('not_found', rejection.message, { details: { field: 'spec.host_id' } });
  if (rejection.kind === 'impossible')
    return new AppError('unavailable', rejection.message, {
      details: { reason: 'impossible', ...whyOf(rejection.hosts) },
      hint: rejection.hint ?? 'No registered host could ever take it: ask for less, or register a host that fits.',
    });
  return new AppError('unavailable', rejection.message, {
    details: { reason: 'no_room', ...whyOf(rejection.hosts) },
    hint: rejection.hint ?? 'Try again when other environments have gone.',
    retryAfterSeconds: 5,
  });
}

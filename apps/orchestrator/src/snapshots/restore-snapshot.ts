/**
 * Restore in place: the environment becomes what it was at the snapshot, under the same id. `resuming`, with what its host is asked for, and the
 * snapshot `restoring` are committed first; the host does it once per restore_id, so any process can finish it. When it fails the host says what
 * the environment is now: running on, paused as before, or lost.
 */
import { AppError } from '@fuse/contract';
import type { HostVm } from '@fuse/host-protocol';
import { newId } from '@fuse/runtime';
import { now, type Tx } from '../db/db.ts';
import type { EnvironmentRow, SnapshotRow } from '../db/schema.ts';
import { requireRoomToResume } from '../environments/admission.ts';
import { isGone } from '../environments/environment.ts';
import { environmentByUid, releaseLease, takeLease, transition } from '../environments/environment-store.ts';
import { putToken } from '../environments/environment-token.ts';
import type { HostClient } from '../hosts/host-client.ts';
import { persistently } from '../hosts/host-retries.ts';
import { lockHosts } from '../hosts/host-store.ts';
import { isHostUnreachable } from '../hosts/host-transport.ts';
import { settleNetwork } from '../network/enforce-network.ts';
import { lockLimits } from '../quotas/quota-store.ts';
import type { SnapshotContext } from './snapshot-context.ts';
import { lockSnapshot, snapshotById, transitionSnapshot } from './snapshot-store.ts';
import { NotOurs } from './take-snapshot.ts';

export interface RestoreRequest {
  tenantId: string;
  id: string;
  /** `disk`: when its memory does not fit the host any more, boot from its disk. */
  fallback: 'disk' | undefined;
}

/** The environment, `resuming` and leased to this process. 404, 409 or 503 and nothing changed. */
export function beginRestore(context: SnapshotContext, request: RestoreRequest): Promise<EnvironmentRow> {
  const { tenantId, id, fallback } = request;
  return context.db.transaction(async (tx) => {
    await lockLimits(tx, tenantId);
    await lockHosts(tx);
    const snapshot = await lockSnapshot(tx, id, 'update');
    if (snapshot === undefined || snapshot.tenant_id !== tenantId) throw snapshotNotFound(id);
    requireReady(snapshot);
    const environment = await environmentOf(tx, snapshot);
    if (snapshot.host_id !== environment.host_id && snapshot.manifest_key === null)
      throw new AppError('conflict', `snapshot ${id} is not on the host of vm ${environment.id}, and not exported`, {
        hint: 'Create a new environment with seed_snapshot_id instead.',
      });
    if (environment.state === 'paused') await requireRoomToResume(context, tx, environment);
    const resuming = await transition(tx, environment, 'resuming', {
      lease: { owner: context.owner, ms: context.startLeaseMs },
      columns: { restore_id: newId('restore'), restore_snapshot_id: id, fallback: fallback ?? null },
    });
    if (resuming === undefined) throw new AppError('conflict', `vm ${environment.id} changed meanwhile`);
    await transitionSnapshot(tx, snapshot, 'restoring');
    return resuming;
  });
}

export const snapshotNotFound = (id: string): AppError => new AppError('not_found', `snapshot ${id} not found`);

export function requireReady(snapshot: SnapshotRow): void {
  if (snapshot.state === 'ready') return;
  const why = snapshot.last_error === null ? '' : `: ${snapshot.last_error}`;
  throw new AppError('conflict', `snapshot ${snapshot.id} is ${snapshot.state}, not ready${why}`, {
    details: { state: snapshot.state },
  });
}

async function environmentOf(tx: Tx, snapshot: SnapshotRow): Promise<EnvironmentRow> {
  const row = snapshot.environment_uid === null ? undefined : await environmentByUid(tx, snapshot.environment_uid);
  if (row === undefined || isGone(row.state))
    throw new AppError('not_found', `vm ${snapshot.vm_id} of snapshot ${snapshot.id} is gone`, {
      hint: 'Create a new environment with seed_snapshot_id instead.',
    });
  if (row.run_id !== null)
    throw new AppError('conflict', `vm ${row.id} belongs to run ${row.run_id}`, {
      details: { state: row.state, run_id: row.run_id },
      hint: 'Create a new environment with seed_snapshot_id instead.',
    });
  if (row.state !== 'running' && row.state !== 'paused')
    throw new AppError('conflict', `vm ${row.id} is ${row.state}, not running`, { details: { state: row.state } });
  return row;
}

/** Finishes or undoes what `beginRestore` began, here or elsewhere. Rejects with the reason when it is not restored. */
export async function finishRestore(context: SnapshotContext, row: EnvironmentRow): Promise<void> {
  const { db, owner, startLeaseMs, log } = context;
  if (!(await takeLease(db.query, row.uid, owner, startLeaseMs))) return notOurs(context, row);
  const renewal = setInterval(() => {
    takeLease(db.query, row.uid, owner, startLeaseMs).catch((error: unknown) =>
      log.warn({ err: error, environment: row.id }, 'lease of a restore not renewed'),
    );
  }, startLeaseMs / 3);
  try {
    // Leased now: it is still what was read, or another restore than the one that was read.
    if ((await environmentByUid(db.query, row.uid))?.version !== row.version) return await notOurs(context, row);
    await restoreOnHost(context, row);
    await putToken(context, row, context.stopping);
    await confirmRestored(context, row);
  } finally {
    clearInterval(renewal);
    await releaseLease(db.query, row.uid, owner).catch(() => {}); // it ends by itself
  }
}

/** Its destruction began before we did, or somebody else goes on with it. */
async function notOurs(context: SnapshotContext, row: EnvironmentRow): Promise<never> {
  const error = new NotOurs();
  await requireNotGoing(context, row, error);
  throw error;
}

async function restoreOnHost(context: SnapshotContext, row: EnvironmentRow): Promise<void> {
  const { db, hostRetryMs, stopping } = context;
  const snapshotId = row.restore_snapshot_id ?? '';
  const snapshot = await snapshotById(db.query, snapshotId);
  let client: HostClient | undefined;
  try {
    client = await context.hosts.client(row.host_id);
    const order = {
      snapshot_id: snapshotId,
      restore_id: row.restore_id ?? '',
      ...(snapshot?.manifest_key ? { manifest_key: snapshot.manifest_key } : {}),
      ...(row.fallback === null ? {} : { fallback: row.fallback }),
    };
    const to = client;
    const vm = await persistently(hostRetryMs, () => to.restoreVm(row.vm_id, order, stopping), stopping);
    await settleNetwork(context, row.uid, vm, stopping);
    if (vm.state !== 'running')
      throw new AppError('vm_lost', `its VM is ${vm.state}: ${vm.error ?? 'no reason known'}`);
  } catch (error) {
    await requireNotGoing(context, row, error);
    if (client === undefined || stopping.aborted || isHostUnreachable(error)) throw leftToOthers(row, error);
    const vm = await whatItIsNow(client, row);
    if (vm === 'unknown') throw leftToOthers(row, error);
    if (vm?.state === 'running' && vm.restore_id === row.restore_id) return; // it was done after all
    await undo(context, row, vm, error);
    throw restoreError(row, vm, error);
  }
}

/** Its destruction ends a restore too: the snapshot is as it was. */
async function requireNotGoing(context: SnapshotContext, row: EnvironmentRow, cause: unknown): Promise<void> {
  const current = await environmentByUid(context.db.query, row.uid);
  if (current !== undefined && current.state !== 'destroying' && !isGone(current.state)) return;
  await context.db.transaction((tx) => settleSnapshot(tx, row.restore_snapshot_id ?? ''));
  throw new AppError('conflict', `vm ${row.id} was destroyed while it was restored`, { cause });
}

async function whatItIsNow(client: HostClient, row: EnvironmentRow): Promise<HostVm | undefined | 'unknown'> {
  try {
    const vm = await client.vm(row.vm_id);
    return ['running', 'paused', 'dead'].includes(vm.state) ? vm : 'unknown';
  } catch (error) {
    return error instanceof AppError && error.code === 'not_found' ? undefined : 'unknown';
  }
}

async function confirmRestored(context: SnapshotContext, row: EnvironmentRow): Promise<void> {
  const snapshotId = row.restore_snapshot_id ?? '';
  const done = await context.db.transaction(async (tx) => {
    await settleSnapshot(tx, snapshotId);
    return transition(tx, row, 'running', {
      error: null,
      restoredFrom: snapshotId,
      columns: { restore_id: null, restore_snapshot_id: null, paused_at: null, last_activity_at: now },
    });
  });
  if (done !== undefined) return;
  const current = await environmentByUid(context.db.query, row.uid);
  if (current?.state === 'running') return; // by another
  throw new AppError('conflict', `vm ${row.id} was destroyed while it was restored`);
}

/** The environment is what its host says; the snapshot can be used again, or never again. */
async function undo(context: SnapshotContext, row: EnvironmentRow, vm: HostVm | undefined, error: unknown) {
  const why = error instanceof Error ? error.message : String(error);
  const to = vm?.state === 'running' || vm?.state === 'paused' ? vm.state : 'failed';
  const snapshotLost = to !== 'failed' && isSnapshotLost(error);
  await context.db.transaction(async (tx) => {
    await settleSnapshot(tx, row.restore_snapshot_id ?? '', snapshotLost ? why : undefined);
    await transition(tx, row, to, {
      ...(to === 'failed' ? { error: `restore of snapshot ${row.restore_snapshot_id}: ${why}` } : {}),
      columns: { restore_id: null, restore_snapshot_id: null },
    });
  });
}

/** Damaged, or (with the VM itself still there) gone from its host. */
const isSnapshotLost = (error: unknown): boolean =>
  error instanceof AppError && (error.code === 'integrity_error' || error.code === 'not_found');

/** Not `restoring` any more. */
async function settleSnapshot(tx: Tx, id: string, error?: string): Promise<void> {
  const row = await lockSnapshot(tx, id, 'update');
  if (row?.state !== 'restoring') return;
  await transitionSnapshot(tx, row, error === undefined ? 'ready' : 'error', error === undefined ? {} : { error });
}

function leftToOthers(row: EnvironmentRow, cause: unknown): AppError {
  return new AppError('unavailable', `vm ${row.id}: its host cannot be reached`, {
    cause,
    details: { reason: 'host_unreachable' },
    hint: 'The restore is finished, or undone, once its host answers again: look at the environment later.',
    retryAfterSeconds: 5,
  });
}

function restoreError(row: EnvironmentRow, vm: HostVm | undefined, error: unknown): unknown {
  if (!(error instanceof AppError) || error.code === 'internal') return error;
  const isLost = vm === undefined || vm.state === 'dead';
  const incompatible = error.details?.reason === 'incompatible';
  const hint = incompatible ? 'Pass ?fallback=disk to boot from its disk alone.' : error.hint;
  return new AppError(isLost ? 'vm_lost' : error.code, `restore of vm ${row.id}: ${error.message}`, {
    cause: error,
    ...(error.details === undefined ? {} : { details: error.details }),
    ...(hint === undefined ? {} : { hint }),
  });
}

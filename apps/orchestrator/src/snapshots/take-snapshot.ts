/**
 * A snapshot's way: the row (`creating`, leased) is committed, its host takes it by that id, flushes and hashes it, then it is `ready`.
 * Whoever holds the lease drives; when the lease runs out anybody finishes it by asking the host, which takes it at most once.
 * What the host refuses leaves no row; what it began and could not finish is `error`.
 */
import {
  AppError,
  AUTO_SNAPSHOT_MODE,
  type CreateSnapshot,
  DEFAULT_SNAPSHOT_MODE,
  type SnapshotState,
} from '@fuse/contract';
import type { HostSnapshot } from '@fuse/host-protocol';
import { newId } from '@fuse/runtime';
import { inMs, jsonb, now, type Tx } from '../db/db.ts';
import type { EnvironmentRow, SnapshotRow } from '../db/schema.ts';
import { openEnv } from '../environments/environment-secrets.ts';
import { environmentByUid } from '../environments/environment-store.ts';
import { requireSavable } from '../environments/gpus.ts';
import { persistently } from '../hosts/host-retries.ts';
import { isHostUnreachable } from '../hosts/host-transport.ts';
import { quotaExceeded } from '../quotas/quotas.ts';
import { overSnapshotBytes } from '../quotas/take-quota.ts';
import { specOf } from './snapshot.ts';
import type { SnapshotContext } from './snapshot-context.ts';
import { sealSnapshotEnv } from './snapshot-secrets.ts';
import {
  insertSnapshot,
  parentOf,
  releaseSnapshotLease,
  removeSnapshot,
  snapshotById,
  takeSnapshotLease,
  transitionSnapshot,
} from './snapshot-store.ts';

export const newSnapshotId = (): string => newId('snap');

export interface NewSnapshot {
  id: string;
  environment: Pick<EnvironmentRow, 'uid' | 'id'>;
  request: CreateSnapshot;
  /** Of the API key that asks for it. */
  keyId?: string | undefined;
  /** Taken by itself, counted by checkpoint_keep. */
  isCheckpoint?: boolean;
}

/** The row, in the caller's transaction. 409 when the environment does not run, 429 when its tenant has no bytes left for it. */
export async function beginSnapshot(
  context: SnapshotContext,
  tx: Tx,
  { id, environment: { uid, id: vmId }, request, keyId, isCheckpoint = false }: NewSnapshot,
): Promise<SnapshotRow> {
  const known = await environmentByUid(tx, uid);
  if (known === undefined) throw notRunning(vmId, undefined);
  const over = await overSnapshotBytes(tx, known.tenant_id, 1); // how many it takes is known once it is there
  if (over !== undefined) throw quotaExceeded(over);
  // In the order in which rows are locked; all of them stay what they are until the row is there.
  const host = await tx
    .selectFrom('hosts')
    .select('arch')
    .where('id', '=', known.host_id ?? '')
    .forKeyShare()
    .executeTakeFirst();
  const parent = await parentOf(tx, known);
  const environment = await tx
    .selectFrom('environments')
    .selectAll()
    .where('uid', '=', uid)
    .forShare()
    .executeTakeFirst();
  if (environment?.state !== 'running') throw notRunning(vmId, environment?.state);
  requireSavable(environment);
  const { metadata = {}, retention_seconds: retention = 0 } = request;
  return insertSnapshot(tx, {
    id,
    tenant_id: environment.tenant_id,
    environment_uid: uid,
    vm_id: environment.id,
    task_id: environment.task_id,
    host_vm_id: environment.vm_id,
    host_id: environment.host_id,
    parent_snapshot_id: parent,
    state: 'creating',
    mode: request.mode || (isCheckpoint ? AUTO_SNAPSHOT_MODE : DEFAULT_SNAPSHOT_MODE),
    is_checkpoint: isCheckpoint,
    comment: request.comment || null,
    name: request.name || metadata.name || null,
    metadata: jsonb(metadata),
    layer_key: request.layer_key || null,
    key_id: keyId ?? null,
    ...(host === undefined ? {} : { arch: host.arch }),
    include_memory: request.include_memory ?? true,
    image: environment.image,
    spec: jsonb(specOf(environment)),
    env: jsonb(sealSnapshotEnv(context.sealer, openEnv(context.sealer, environment), id)),
    network: jsonb(environment.network),
    cpus: environment.cpus,
    ram_mb: environment.ram_mb,
    storage_gb: environment.storage_gb,
    retention_until: retention > 0 ? inMs(retention * 1_000) : null,
    export_ref: request.export_ref || null,
    export_status: request.export_status || null,
    ...(request.export === true ? { export_state: 'pending', export_requested_at: now } : {}),
    lease_owner: context.owner,
    lease_until: inMs(context.startLeaseMs),
  });
}

export function notRunning(vmId: string, state: string | undefined): AppError {
  return new AppError('conflict', `vm ${vmId} is ${state ?? 'gone'}, not running`, {
    details: { state: state ?? 'destroyed' },
    ...(state === 'paused' ? { hint: 'Resume it first.' } : {}),
  });
}

/** Another drives it already, or is to. */
export class NotOurs extends Error {
  override readonly name = 'NotOurs';
}

/** Runs `work` under the lease, renewed; a host that cannot be reached leaves the row to whoever comes next. */
export async function leasedTaking<T>(
  context: SnapshotContext,
  { id }: Pick<SnapshotRow, 'id'>,
  work: () => Promise<T>,
): Promise<T> {
  const { db, owner, startLeaseMs, log } = context;
  if (!(await takeSnapshotLease(db.query, id, owner, startLeaseMs))) throw new NotOurs();
  const renewal = setInterval(() => {
    takeSnapshotLease(db.query, id, owner, startLeaseMs).catch((error: unknown) =>
      log.warn({ err: error, snapshot_id: id }, 'lease of a snapshot not renewed'),
    );
  }, startLeaseMs / 3);
  try {
    return await work();
  } finally {
    clearInterval(renewal);
    await releaseSnapshotLease(db.query, id, owner).catch(() => {}); // it ends by itself
  }
}

/** Resolves once VMs may start from it on its host. */
export async function takeOnHost(context: SnapshotContext, row: SnapshotRow): Promise<void> {
  const order = { tag: context.clusterTag, include_memory: row.include_memory };
  let taken: HostSnapshot;
  try {
    const client = await context.hosts.client(row.host_id);
    taken = await persistently(
      context.hostRetryMs,
      () => client.takeSnapshot(row.host_vm_id, row.id, order, context.stopping),
      context.stopping,
    );
  } catch (error) {
    if (context.stopping.aborted || isHostUnreachable(error)) throw leftToOthers(row, error);
    const refused = error instanceof AppError && error.code !== 'internal' ? error : undefined;
    if (refused === undefined) {
      await failSnapshot(context, row, 'its host failed to take it');
      throw error;
    }
    const told = takingError(row, refused);
    // Whoever asked is told. Nobody asked for a checkpoint: its row says why there is none, unless the environment just does not run any more.
    if (row.is_checkpoint && told.code !== 'conflict') await failSnapshot(context, row, refused.message);
    else await context.db.transaction((tx) => removeSnapshot(tx, row)); // the host left nothing behind
    throw told;
  }
  if (taken.state === 'broken') throw await brokenTaking(context, row, taken.error);
}

/**
 * Waits until the host has it safe; then it is `ready`, with whatever `onReady` writes in that transaction. One with more bytes than its tenant has left is
 * an `error` that is collected at once.
 */
export async function finishTaking(
  context: SnapshotContext,
  row: SnapshotRow,
  onReady: (tx: Tx, ready: SnapshotRow) => Promise<void> = async () => {},
): Promise<SnapshotRow> {
  const found = await whenDurable(context, row);
  const ready = await context.db.transaction(async (tx) => {
    const over = await overSnapshotBytes(tx, row.tenant_id, found.stored_bytes ?? 0);
    if (over !== undefined) {
      const refusal = quotaExceeded(over);
      const columns = { retention_until: now };
      return (await transitionSnapshot(tx, row, 'error', { error: refusal.message, columns })) && refusal;
    }
    const changed = await transitionSnapshot(tx, row, 'ready', {
      columns: {
        digest: found.digest ?? null,
        size_bytes: found.size_bytes ?? null,
        stored_bytes: found.stored_bytes ?? null,
        pause_ms: found.pause_ms ?? null,
      },
    });
    if (changed !== undefined) await onReady(tx, changed);
    return changed;
  });
  if (ready instanceof AppError) throw ready;
  if (ready !== undefined) return ready;
  const current = await snapshotById(context.db.query, row.id);
  if (current?.state === 'ready' || current?.state === 'restoring') return current; // by another
  if (current === undefined) await dropBytes(context, row);
  throw endedMeanwhile(row, current?.state);
}

/** It was deleted before the host had begun with it: what came of that is nobody's. */
async function dropBytes({ hosts, log, stopping }: SnapshotContext, row: SnapshotRow): Promise<void> {
  try {
    await (await hosts.client(row.host_id)).deleteSnapshot(row.id, stopping);
  } catch (error) {
    log.warn({ err: error, snapshot_id: row.id }, 'bytes of a deleted snapshot are left to reconciling');
  }
}

const WAIT_MS = 20_000;

async function whenDurable(context: SnapshotContext, row: SnapshotRow): Promise<HostSnapshot> {
  try {
    const client = await context.hosts.client(row.host_id);
    for (;;) {
      const found = await persistently(
        context.hostRetryMs,
        () => client.snapshot(row.id, WAIT_MS, context.stopping),
        context.stopping,
      );
      if (found.state === 'durable') return found;
      if (found.state === 'broken') throw await brokenTaking(context, row, found.error);
    }
  } catch (error) {
    if (context.stopping.aborted || isHostUnreachable(error)) throw leftToOthers(row, error);
    if (error instanceof AppError && error.code === 'not_found') {
      const current = await snapshotById(context.db.query, row.id);
      if (current?.state !== 'creating') throw endedMeanwhile(row, current?.state);
      await failSnapshot(context, row, 'its taking was interrupted: its host does not have it');
    }
    throw error;
  }
}

/** `error`, with the reason, unless something else became of it. */
export async function failSnapshot(context: SnapshotContext, row: SnapshotRow, reason: string): Promise<void> {
  await context.db.transaction((tx) => transitionSnapshot(tx, row, 'error', { error: reason }));
}

async function brokenTaking(context: SnapshotContext, row: SnapshotRow, why = 'no reason known'): Promise<AppError> {
  await failSnapshot(context, row, why);
  return new AppError('unavailable', `snapshot ${row.id} of vm ${row.vm_id} could not be finished: ${why}`, {
    details: { snapshot_id: row.id },
    hint: 'Delete it, and take another one once its host has recovered.',
  });
}

function leftToOthers(row: SnapshotRow, cause: unknown): AppError {
  return new AppError('unavailable', `snapshot ${row.id} of vm ${row.vm_id}: its host cannot be reached`, {
    cause,
    details: { snapshot_id: row.id, reason: 'host_unreachable' },
    hint: 'It is finished, or marked as an error, once its host answers again: look at it later.',
    retryAfterSeconds: 5,
  });
}

function endedMeanwhile(row: SnapshotRow, state: SnapshotState | undefined): AppError {
  const what = state === 'error' ? 'failed' : 'was deleted';
  return new AppError('conflict', `snapshot ${row.id} ${what} while it was taken`, {
    details: { snapshot_id: row.id },
  });
}

/** The host knows no VM, or one that does not run: to the caller its environment is not in a state to be snapshotted. */
function takingError(row: SnapshotRow, error: AppError): AppError {
  const code = error.code === 'not_found' || error.code === 'vm_lost' ? 'conflict' : error.code;
  return new AppError(code, `snapshot of vm ${row.vm_id}: ${error.message}`, {
    cause: error,
    ...(error.details === undefined ? {} : { details: error.details }),
    ...(error.hint === undefined ? {} : { hint: error.hint }),
    ...(error.retryAfterSeconds === undefined ? {} : { retryAfterSeconds: error.retryAfterSeconds }),
  });
}

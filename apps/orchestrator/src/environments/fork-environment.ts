/**
 * `?action=fork`: environments that go on from a snapshot of this one. One transaction admits all of them and, when none is reused, begins the
 * snapshot: a refusal leaves nothing behind. They start as soon as the host can start from it, and become `running` together, or none does.
 * With an Idempotency-Key they are made once; forks that failed leave the key free.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import {
  AppError,
  AUTO_SNAPSHOT_MODE,
  canonicalPolicy,
  Environment,
  type ForkEnvironment,
  Forks,
} from '@fuse/contract';
import { sleep } from '@fuse/runtime';
import type { Tx } from '../db/db.ts';
import type { EnvironmentRow, SnapshotRow } from '../db/schema.ts';
import { lockHosts } from '../hosts/host-store.ts';
import type { IdempotentRequest } from '../idempotency/idempotency-key.ts';
import { claimKey, findAnswer, forgetKey, recordResponse } from '../idempotency/idempotency-store.ts';
import { chooseNetwork } from '../network/choose-network.ts';
import { noNetworkCard } from '../network/enforce-network.ts';
import { lockLimits } from '../quotas/quota-store.ts';
import type { RateStanding } from '../quotas/quotas.ts';
import { overReservation, requireNotOver, tellingRate } from '../quotas/take-quota.ts';
import { specOf } from '../snapshots/snapshot.ts';
import { openSnapshotEnv } from '../snapshots/snapshot-secrets.ts';
import type { SnapshotService } from '../snapshots/snapshot-service.ts';
import { lockSnapshot } from '../snapshots/snapshot-store.ts';
import { acceptAdmission } from './accept-admission.ts';
import { rejectionError } from './admission.ts';
import { isGone, toEnvironment } from './environment.ts';
import type { EnvironmentContext } from './environment-context.ts';
import { openEnv } from './environment-secrets.ts';
import type { EnvironmentService } from './environment-service.ts';
import { environmentById, environmentByUid } from './environment-store.ts';
import { requireSavable } from './gpus.ts';
import { requireStartable, seedFrom } from './seed.ts';
import { measured } from './start-steps.ts';

/** Of the snapshot that a fork takes: long enough to fork from it again. */
const SEED_RETENTION_SECONDS = 86_400;
const MAX_KEY_TRIES = 5;
const LOOK_AGAIN_MS = 250;

export interface ForkRequest {
  tenantId: string;
  /** The API key that asks for it. */
  keyId?: string | undefined;
  id: string;
  request: ForkEnvironment;
  idempotent: IdempotentRequest | undefined;
  /** Of the client: without a key nobody could find what goes on after it left. */
  signal: AbortSignal;
  /** Hears how the rate of creates stands, where there is a limit. */
  onCreateRate?: ((rate: RateStanding) => void) | undefined;
}

export interface Forked {
  answer: Environment | Forks;
  /** An earlier request's answer. */
  replayed: boolean;
}

interface AdmittedForks {
  snapshot: SnapshotRow;
  isFresh: boolean;
  environments: EnvironmentRow[];
}

export async function forkEnvironment(
  context: EnvironmentContext,
  { environments, snapshots }: { environments: EnvironmentService; snapshots: SnapshotService },
  forking: ForkRequest,
): Promise<Forked> {
  const { request, idempotent } = forking;
  for (let tries = 1; ; tries += 1) {
    const earlier = idempotent === undefined ? undefined : await replay(context, idempotent);
    if (earlier !== undefined) return { answer: earlier, replayed: true };
    const admitted = await measured(context, 'admit', () =>
      tellingRate(forking.onCreateRate, (onCreateRate) =>
        admitForks(context, { environments, snapshots }, { ...forking, onCreateRate }),
      ),
    );
    if (admitted !== undefined) return { answer: await start(admitted), replayed: false };
    if (tries >= MAX_KEY_TRIES)
      throw new AppError('conflict', 'this Idempotency-Key is in use', { retryAfterSeconds: 1 });
  }

  async function start({ snapshot, isFresh, environments: rows }: AdmittedForks): Promise<Environment | Forks> {
    const signal = idempotent === undefined ? forking.signal : new AbortController().signal;
    const show = (running: EnvironmentRow[]) =>
      answerOf(
        request,
        snapshot.id,
        running.map((row) => toEnvironment(row, context.publicAddress())),
      );
    try {
      const running = await environments.startTogether(rows, {
        signal,
        before: isFresh ? snapshots.take(snapshot).usable : undefined,
        onRunning: async (tx, all) => {
          if (idempotent !== undefined) await recordResponse(tx, idempotent, show(all));
        },
      });
      return show(running);
    } catch (error) {
      if (isFresh) await dropSnapshot(context, snapshots, snapshot.id);
      throw withCount(notLeftBehind(error), rows.length);
    }
  }
}

function answerOf({ count }: ForkEnvironment, snapshotId: string, running: Environment[]): Environment | Forks {
  const [first] = running;
  if (first === undefined) throw new Error('a fork without an environment');
  return count === undefined ? first : { snapshot_id: snapshotId, environments: running };
}

/** Undefined: another request has the key. */
function admitForks(
  context: EnvironmentContext,
  { environments, snapshots }: { environments: EnvironmentService; snapshots: SnapshotService },
  { tenantId, keyId, id, request, idempotent, onCreateRate }: ForkRequest,
): Promise<AdmittedForks | undefined> {
  const asked = request.network && canonicalPolicy(request.network);
  const uids = Array.from({ length: request.count ?? 1 }, () => randomUUID());
  return context.db.transaction(async (tx) => {
    if (idempotent !== undefined && !(await claimKey(tx, idempotent, uids.join(',')))) return undefined;
    await lockLimits(tx, tenantId);
    await lockHosts(tx);
    const source = await environmentById(tx, tenantId, id);
    if (source === undefined) throw new AppError('not_found', `vm ${id} not found`);
    const isFresh = !request.reuse_snapshot_id;
    if (source.state === 'running') requireSavable(source);
    const snapshot = isFresh
      ? await freshSnapshot(tx, snapshots, source, request)
      : await reusedSnapshot(tx, source, request.reuse_snapshot_id ?? '');
    const wish = { tenantId, spec: specOf(source) };
    const { spec } = await acceptAdmission(tx, wish, { count: uids.length, told: onCreateRate });
    await requireRoomInQuota(tx, source, uids.length);
    if (isFresh && asked !== undefined && asked.egress !== 'none' && source.network_card === false)
      throw noNetworkCard(source.id);
    const inherited = isFresh ? source.network : snapshot.network;
    const network = await chooseNetwork(tx, context.network, { tenantId, asked, inherited });
    const admitted: EnvironmentRow[] = [];
    for (const uid of uids) {
      const { idle_action, auto_resume, checkpoint_interval_seconds, checkpoint_keep } = source;
      const admission = await environments.admit(tx, {
        uid,
        tenantId,
        keyId,
        taskId: `fork-${randomBytes(16).toString('hex')}`,
        spec,
        env: isFresh ? openEnv(context.sealer, source) : openSnapshotEnv(context.sealer, snapshot),
        labels: source.labels,
        network,
        lifetime: { idle_action, auto_resume, checkpoint_interval_seconds, checkpoint_keep },
        interior: { healthcheck: source.healthcheck, expose: source.expose, desktop: source.desktop },
        seed: seedFrom(snapshot),
      });
      if (admission.kind !== 'admitted') throw withCount(rejectionError(admission), uids.length, admitted.length);
      admitted.push(admission.environment);
    }
    return { snapshot, isFresh, environments: admitted };
  });
}

/** All of them, or none. */
async function requireRoomInQuota(tx: Tx, source: EnvironmentRow, count: number): Promise<void> {
  const { tenant_id: tenantId, cpus, ram_mb, storage_gb } = source;
  const wanted = { environments: count, cpus: count * cpus, ram_mb: count * ram_mb, storage_gb: count * storage_gb };
  requireNotOver(await overReservation(tx, tenantId, wanted), tenantId);
}

function freshSnapshot(
  tx: Tx,
  snapshots: SnapshotService,
  source: EnvironmentRow,
  { comment }: ForkEnvironment,
): Promise<SnapshotRow> {
  if (source.state !== 'running')
    throw new AppError('conflict', `vm ${source.id} is ${source.state}, not running`, {
      details: { state: source.state },
      ...(source.state === 'paused'
        ? { hint: 'Resume it first, or fork from a snapshot of it with reuse_snapshot_id.' }
        : {}),
    });
  return snapshots.begin(tx, {
    environment: source,
    request: {
      mode: AUTO_SNAPSHOT_MODE,
      retention_seconds: SEED_RETENTION_SECONDS,
      ...(comment === undefined ? {} : { comment }),
    },
  });
}

async function reusedSnapshot(tx: Tx, source: EnvironmentRow, snapshotId: string): Promise<SnapshotRow> {
  const snapshot = await lockSnapshot(tx, snapshotId, 'share');
  if (snapshot === undefined || snapshot.environment_uid !== source.uid)
    throw new AppError('not_found', `snapshot ${snapshotId} of vm ${source.id} not found`, {
      details: { field: 'reuse_snapshot_id' },
    });
  requireStartable(snapshot);
  return snapshot;
}

/** Nobody asked for it but the forks that did not come to be. */
async function dropSnapshot(context: EnvironmentContext, snapshots: SnapshotService, id: string): Promise<void> {
  await snapshots.delete(id, { force: true }).catch((error: unknown) => {
    if (!(error instanceof AppError) || error.code !== 'not_found')
      context.log.warn({ err: error, snapshot_id: id }, 'snapshot of a failed fork not deleted yet');
  });
}

/** A snapshot alone goes on by itself when its host was away; this one was dropped. */
function notLeftBehind(error: unknown): unknown {
  if (!(error instanceof AppError) || error.details?.reason !== 'host_unreachable') return error;
  return new AppError('unavailable', error.message, { cause: error, retryAfterSeconds: 5 });
}

/** The same error, saying that none of them is left. */
function withCount(error: unknown, count: number, fitting?: number): unknown {
  if (count === 1 || !(error instanceof AppError) || error.code === 'internal') return error;
  const room = fitting === undefined ? '' : `, there is room for ${fitting}`;
  return new AppError(error.code, `none of ${count} forks was made${room}: ${error.message}`, {
    cause: error,
    status: error.status,
    ...(error.details === undefined ? {} : { details: error.details }),
    ...(error.hint === undefined ? {} : { hint: error.hint }),
    ...(error.retryAfterSeconds === undefined ? {} : { retryAfterSeconds: error.retryAfterSeconds }),
  });
}

/** Undefined when the key is free, also because nothing came of the request that used it. */
async function replay(
  context: EnvironmentContext,
  idempotent: IdempotentRequest,
): Promise<Environment | Forks | undefined> {
  for (;;) {
    const earlier = await findAnswer(context.db.query, idempotent);
    if (earlier === undefined) return undefined;
    // Written in the transaction that makes them run.
    if (earlier.response !== null) return Forks.or(Environment).parse(earlier.response);
    const [uid = ''] = earlier.resourceId.split(',');
    const row = await environmentByUid(context.db.query, uid);
    if (row === undefined || isGone(row.state) || row.state === 'destroying') {
      await forgetKey(context.db.query, idempotent, earlier.resourceId);
      return undefined;
    }
    await sleep(LOOK_AGAIN_MS); // whoever drives them, or gives them up, is soon done
  }
}

/**
 * Admission of a run. Checked and stored first, then one transaction: the idempotency key, the uploads it uses, room when there is
 * some and nobody waits longer, the row. A refusal leaves nothing behind.
 */
import { AppError, type CreateRun, type NetworkPolicy, type Run } from '@fuse/contract';
import type { ObjectStore } from '@fuse/object-store';
import { newId } from '@fuse/runtime';
import { channels, type Db, notify, type Tx } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { rejectionError, requirePlaceInQueue } from '../environments/admission.ts';
import type { EnvironmentService } from '../environments/environment-service.ts';
import type { IdempotentRequest } from '../idempotency/idempotency-key.ts';
import { claimKey, recordResponse } from '../idempotency/idempotency-store.ts';
import type { RateStanding } from '../quotas/quotas.ts';
import { tellingRate } from '../quotas/take-quota.ts';
import type { Sealer } from '../secrets/sealer.ts';
import { acceptRun } from './accept-run.ts';
import { planRun, type RunPlan } from './request.ts';
import { admissionOf } from './run-admission.ts';
import { dropInline, hasInline, storedRequest, storeInline } from './run-contents.ts';
import type { RunRecord } from './run-reads.ts';
import { insertRun } from './run-store.ts';
import type { RunWorker } from './run-worker.ts';

export interface CreateContext {
  db: Db;
  sealer: Sealer;
  objectStore: ObjectStore;
  environments: EnvironmentService;
  worker: RunWorker;
}

export interface NewRunRequest {
  tenantId: string;
  body: CreateRun;
  idempotent: IdempotentRequest | undefined;
  /** Of performance.now(). */
  receivedAt: number;
  /** The answer to remember under the key. */
  show: (record: RunRecord) => Promise<Run>;
  /** Hears how the rate of creates stands, where there is a limit. */
  onCreateRate?: ((rate: RateStanding) => void) | undefined;
}

/** Undefined: another request with this key was first. */
export async function createRun(context: CreateContext, request: NewRunRequest): Promise<RunRecord | undefined> {
  const { db, objectStore, environments, worker } = context;
  const plan = planRun(request.body);
  const runId = newId('run');
  const inline = hasInline(plan);
  let committing = false;
  let slot = false;
  try {
    const contents = await storeInline(objectStore, runId, plan);
    slot = worker.reserveSlot();
    const heldUntil = performance.now() + worker.leaseMs;
    const created = await tellingRate(request.onCreateRate, (onCreateRate) =>
      db.transaction(async (tx) => {
        if (request.idempotent !== undefined && !(await claimKey(tx, request.idempotent, runId))) return undefined;
        const admitted = await admitRun(context, tx, { ...request, onCreateRate }, { plan, runId, contents, slot });
        committing = true;
        return admitted;
      }),
    );
    if (created === undefined) {
      if (inline) await dropInline(objectStore, runId);
      return undefined;
    }
    const { record, environment } = created;
    if (environment !== undefined) {
      slot = false;
      worker.drive(record, heldUntil, environment);
    } else worker.wakeQueue();
    return record;
  } catch (error) {
    // A commit whose answer was lost may have happened: then the run needs them. Else they are swept later.
    if (inline && !committing) await dropInline(objectStore, runId).catch(() => {});
    // Perhaps because nobody has the image: then that is what is wrong.
    if (error instanceof AppError && error.details?.reason === 'impossible')
      await environments.requireImage(plan.image);
    throw error;
  } finally {
    if (slot) worker.releaseSlot();
  }
}

interface PreparedRun {
  plan: RunPlan;
  runId: string;
  contents: Awaited<ReturnType<typeof storeInline>>;
  /** Whether this process can drive it at once. */
  slot: boolean;
}

/** Beyond waiting and running: until the inputs are in the guest. */
const KEEP_FILES_EXTRA_MS = 3_600_000;

async function admitRun(
  context: CreateContext,
  tx: Tx,
  request: NewRunRequest,
  prepared: PreparedRun,
): Promise<{ record: RunRecord; environment: EnvironmentRow | undefined }> {
  const { tenantId, idempotent } = request;
  const { runId, contents } = prepared;
  const isTimeGiven = request.body.limits?.timeout_ms !== undefined;
  const mayWait = (request.body.queue_timeout_ms ?? 0) > 0;
  const plan = await acceptRun(tx, tenantId, prepared.plan, { isTimeGiven, mayWait, told: request.onCreateRate });
  const stored = await storedRequest(tx, tenantId, plan, contents, plan.queueTimeoutMs + KEEP_FILES_EXTRA_MS);
  const network = await context.environments.chooseNetwork(tx, { tenantId, asked: plan.network });
  const environment = await reserveRoom(context, tx, request, { ...prepared, plan, network });
  if (environment === undefined) await requirePlaceInQueue(tx, tenantId);
  const { owner, leaseMs } = context.worker;
  const row = await insertRun(
    tx,
    context.sealer,
    {
      id: runId,
      tenantId,
      image: plan.image,
      shape: plan.shape,
      timeoutMs: plan.timeoutMs,
      queueTimeoutMs: plan.queueTimeoutMs,
      labels: plan.labels,
      network,
      request: stored,
      admitMs: performance.now() - request.receivedAt,
    },
    environment === undefined ? undefined : { environmentUid: environment.uid, owner, leaseMs },
  );
  if (environment === undefined) await notify(tx, channels.runs, 'queued');
  const record = { ...row, environment_id: environment?.id ?? null, destroy_ms: null };
  if (idempotent !== undefined) await recordResponse(tx, idempotent, await request.show(record));
  return { record, environment };
}

/** Undefined: it has to wait. Throws what nobody could ever give, and what may not wait. */
async function reserveRoom(
  { environments, worker }: CreateContext,
  tx: Tx,
  { tenantId }: NewRunRequest,
  { plan, runId, slot, network }: PreparedRun & { network: NetworkPolicy },
): Promise<EnvironmentRow | undefined> {
  const { image, shape, timeoutMs } = plan;
  if (!slot) {
    const placement = await environments.wouldPlace(tx, { ...shape, image, network: network.egress !== 'none' });
    if (placement.kind === 'impossible') throw rejectionError(placement);
    if (plan.queueTimeoutMs === 0)
      throw new AppError('unavailable', 'no room now: as many runs are driven as can be', {
        details: { reason: 'no_room' },
        hint: 'give it a queue_timeout_ms to wait for room',
        retryAfterSeconds: 5,
      });
    return undefined;
  }
  const asking = { id: runId, tenant_id: tenantId, image, ...shape, timeout_ms: timeoutMs, network };
  const admission = await environments.admit(tx, { ...admissionOf(asking), afterRuns: !worker.hasFreeSlot });
  if (admission.kind === 'admitted') return admission.environment;
  const mayWait = admission.kind === 'no_room' || admission.kind === 'over_quota';
  if (!mayWait || plan.queueTimeoutMs === 0) throw rejectionError(admission, { mayWait: true });
  return undefined;
}

/**
 * `POST /v1/environments`: checked, admitted, started; running when it resolves, or, with `wait: false`, provisioning and on its way.
 * With an Idempotency-Key there is one environment however often it is asked for: the key is claimed in the transaction that admits, everybody
 * else waits for the same start and gets the same answer. A start that failed leaves the key free, unless nobody waited for it: then what became of
 * it is the answer.
 */

import { randomUUID } from 'node:crypto';
import { type CreateEnvironment, DEFAULT_IMAGE, Environment } from '@fuse/contract';
import type { Tx } from '../db/db.ts';
import type { EnvironmentRow, Exposed } from '../db/schema.ts';
import { hostById } from '../hosts/host-store.ts';
import type { IdempotentRequest } from '../idempotency/idempotency-key.ts';
import { claimKey, findAnswer, forgetKey, recordResponse } from '../idempotency/idempotency-store.ts';
import { type Admission, isConflictWithDying, rejectionError } from './admission.ts';
import { checkSpec, isGone, toEnvironment } from './environment.ts';
import type { EnvironmentContext } from './environment-context.ts';
import type { EnvironmentService } from './environment-service.ts';
import { environmentById, type Lifetime } from './environment-store.ts';
import { seeded } from './seed.ts';
import { checkStartup, startupOf } from './startup.ts';

export interface Creation {
  tenantId: string;
  request: CreateEnvironment;
  idempotent: IdempotentRequest | undefined;
  /** Of the client: without a key nobody could find what goes on after it left, so the start is given up. */
  signal: AbortSignal;
}

export interface Created {
  environment: Environment;
  /** An earlier request's answer. */
  replayed: boolean;
}

const MAX_WAITS_FOR_DYING = 5;
const MAX_KEY_TRIES = 5;

/** What is asked for, seen inside the transaction that admits it: a snapshot's row is held there. */
type Plan = (tx: Tx) => Promise<Admission>;

export async function createEnvironment(
  context: EnvironmentContext,
  service: EnvironmentService,
  { tenantId, request, idempotent, signal }: Creation,
): Promise<Created> {
  checkSpec(request.spec ?? {});
  checkStartup(request);
  if (idempotent !== undefined) return createOnce(context, service, { tenantId, request }, idempotent);
  await requirePlace(context, service, request);
  const admitted = await admitForNow(context, service, planOf(context, tenantId, request));
  if (request.wait === false) service.startUnwaited(admitted.uid);
  const row = request.wait === false ? admitted : await service.start(admitted.uid, { signal });
  return { environment: toEnvironment(row, context.publicAddress()), replayed: false };
}

function planOf({ sealer }: EnvironmentContext, tenantId: string, request: CreateEnvironment, uid?: string): Plan {
  const { seed_snapshot_id } = request;
  return async (tx) => ({
    tenantId,
    taskId: request.task_id,
    spec: request.spec ?? {},
    env: request.env ?? {},
    lifetime: lifetimeOf(request),
    interior: { startup: startupOf(request), healthcheck: request.healthcheck, expose: request.expose?.map(toExposed) },
    ...(seed_snapshot_id ? await seeded(tx, sealer, tenantId, { ...request, seed_snapshot_id }) : {}),
    ...(uid === undefined ? {} : { uid }),
  });
}

const toExposed = ({ port, as }: { port: number; as?: string | undefined }): Exposed => ({
  port,
  ...(as === undefined ? {} : { as }),
});

/** The columns of what was given. */
function lifetimeOf(request: CreateEnvironment): Lifetime {
  const { idle_action, auto_resume, checkpoint_interval_seconds, checkpoint_keep } = request;
  return {
    ...(idle_action === undefined ? {} : { idle_action }),
    ...(auto_resume === undefined ? {} : { auto_resume }),
    ...(checkpoint_interval_seconds === undefined ? {} : { checkpoint_interval_seconds }),
    ...(checkpoint_keep === undefined ? {} : { checkpoint_keep }),
  };
}

async function requirePlace(
  context: EnvironmentContext,
  service: EnvironmentService,
  { spec = {}, seed_snapshot_id }: CreateEnvironment,
): Promise<void> {
  const hostId = spec.host_id || undefined;
  if (hostId !== undefined && (await hostById(context.db.query, hostId)) === undefined)
    throw rejectionError({
      kind: 'no_such_host',
      message: `spec.host_id: host "${hostId}" is not registered`,
      reasons: [],
    });
  if (!seed_snapshot_id) await service.requireImage(spec.image || DEFAULT_IMAGE, 'spec.image');
}

/** Admits or refuses; waits only for the task's own former environment to be gone. */
async function admitForNow(
  context: EnvironmentContext,
  service: EnvironmentService,
  plan: Plan,
  first: (tx: Tx) => Promise<void> = async () => {},
): Promise<EnvironmentRow> {
  for (let waits = 0; ; waits += 1) {
    let wanted: Admission | undefined;
    try {
      const admitted = await context.db.transaction(async (tx) => {
        await first(tx);
        wanted = await plan(tx);
        return service.admit(tx, wanted);
      });
      if (admitted.kind === 'admitted') return admitted.environment;
      throw rejectionError(admitted);
    } catch (error) {
      if (wanted === undefined || !isConflictWithDying(error) || waits >= MAX_WAITS_FOR_DYING) throw error;
      const id = `${context.vmPrefix}${wanted.taskId}`;
      const dying = await environmentById(context.db.query, wanted.tenantId, id);
      if (dying?.state === 'destroying') await service.destroy(dying.uid);
    }
  }
}

/** Another request holds the key now. */
class KeyTaken extends Error {
  override readonly name = 'KeyTaken';
}

async function createOnce(
  context: EnvironmentContext,
  service: EnvironmentService,
  { tenantId, request }: Pick<Creation, 'tenantId' | 'request'>,
  idempotent: IdempotentRequest,
): Promise<Created> {
  for (let tries = 1; ; tries += 1) {
    const earlier = await replay(context, service, request, idempotent);
    if (earlier !== undefined) return { environment: earlier, replayed: true };
    await requirePlace(context, service, request);
    const uid = randomUUID();
    try {
      const admitted = await admitForNow(context, service, planOf(context, tenantId, request, uid), async (tx) => {
        if (!(await claimKey(tx, idempotent, uid))) throw new KeyTaken();
      });
      if (request.wait === false) {
        service.startUnwaited(uid);
        return { environment: toEnvironment(admitted, context.publicAddress()), replayed: false };
      }
      const environment = toEnvironment(await service.start(uid), context.publicAddress());
      await context.db.transaction((tx) => recordResponse(tx, idempotent, environment));
      return { environment, replayed: false };
    } catch (error) {
      if (!(error instanceof KeyTaken) || tries >= MAX_KEY_TRIES) throw error;
    }
  }
}

/** Undefined when the key is free, also because nothing came of the request that used it. */
async function replay(
  context: EnvironmentContext,
  service: EnvironmentService,
  { wait }: CreateEnvironment,
  idempotent: IdempotentRequest,
): Promise<Environment | undefined> {
  const earlier = await findAnswer(context.db.query, idempotent);
  if (earlier === undefined) return undefined;
  if (earlier.response !== null) return Environment.parse(earlier.response);
  const row = await service.get(context.db.query, earlier.resourceId);
  if (wait === false && row !== undefined) return toEnvironment(row, context.publicAddress());
  if (row !== undefined && !isGone(row.state) && row.state !== 'destroying')
    return toEnvironment(await service.start(row.uid), context.publicAddress());
  await forgetKey(context.db.query, idempotent, earlier.resourceId);
  return undefined;
}

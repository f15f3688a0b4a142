/**
 * `POST /v1/environments`: checked, admitted, started; running when it resolves.
 * With an Idempotency-Key there is one environment however often it is asked for: the key is claimed in the transaction that admits, everybody
 * else waits for the same start and gets the same answer. A start that failed leaves the key free.
 */

import { randomUUID } from 'node:crypto';
import { type CreateEnvironment, DEFAULT_IMAGE, Environment } from '@fuse/contract';
import type { Tx } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { hostById } from '../hosts/host-store.ts';
import type { IdempotentRequest } from '../idempotency/idempotency-key.ts';
import { claimKey, findAnswer, recordResponse } from '../idempotency/idempotency-store.ts';
import { type Admission, isConflictWithDying, rejectionError } from './admission.ts';
import { checkSpec, isGone, refuseUnsupported, toEnvironment } from './environment.ts';
import type { EnvironmentContext } from './environment-context.ts';
import type { EnvironmentService } from './environment-service.ts';
import { environmentById, type Lifetime } from './environment-store.ts';

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

export async function createEnvironment(
  context: EnvironmentContext,
  service: EnvironmentService,
  { tenantId, request, idempotent, signal }: Creation,
): Promise<Created> {
  const spec = request.spec ?? {};
  refuseUnsupported(request);
  checkSpec(spec);
  const admission: Admission = {
    tenantId,
    taskId: request.task_id,
    spec,
    env: request.env ?? {},
    lifetime: lifetimeOf(request),
  };
  if (idempotent !== undefined) return createOnce(context, service, admission, idempotent);
  await requirePlace(context, service, admission);
  const { uid } = await admitForNow(context, service, admission);
  return { environment: toEnvironment(await service.start(uid, { signal })), replayed: false };
}

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

async function requirePlace(context: EnvironmentContext, service: EnvironmentService, { spec }: Admission) {
  const hostId = spec.host_id || undefined;
  if (hostId !== undefined && (await hostById(context.db.query, hostId)) === undefined)
    throw rejectionError({
      kind: 'no_such_host',
      message: `spec.host_id: host "${hostId}" is not registered`,
      reasons: [],
    });
  await service.requireImage(spec.image || DEFAULT_IMAGE, 'spec.image');
}

/** Admits or refuses; waits only for the task's own former environment to be gone. */
async function admitForNow(
  context: EnvironmentContext,
  service: EnvironmentService,
  admission: Admission,
  first: (tx: Tx) => Promise<void> = async () => {},
): Promise<EnvironmentRow> {
  for (let waits = 0; ; waits += 1) {
    try {
      const admitted = await context.db.transaction(async (tx) => {
        await first(tx);
        return service.admit(tx, admission);
      });
      if (admitted.kind === 'admitted') return admitted.environment;
      throw rejectionError(admitted);
    } catch (error) {
      if (!isConflictWithDying(error) || waits >= MAX_WAITS_FOR_DYING) throw error;
      const id = `${context.vmPrefix}${admission.taskId}`;
      const dying = await environmentById(context.db.query, admission.tenantId, id);
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
  admission: Admission,
  idempotent: IdempotentRequest,
): Promise<Created> {
  for (let tries = 1; ; tries += 1) {
    const earlier = await replay(context, service, idempotent);
    if (earlier !== undefined) return { environment: earlier, replayed: true };
    await requirePlace(context, service, admission);
    const uid = randomUUID();
    try {
      await admitForNow(context, service, { ...admission, uid }, async (tx) => {
        if (!(await claimKey(tx, idempotent, uid))) throw new KeyTaken();
      });
      const environment = toEnvironment(await service.start(uid));
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
  idempotent: IdempotentRequest,
): Promise<Environment | undefined> {
  const earlier = await findAnswer(context.db.query, idempotent);
  if (earlier === undefined) return undefined;
  if (earlier.response !== null) return Environment.parse(earlier.response);
  const row = await service.get(context.db.query, earlier.resourceId);
  if (row !== undefined && !isGone(row.state) && row.state !== 'destroying')
    return toEnvironment(await service.start(row.uid));
  await context.db.query
    .deleteFrom('idempotency_keys')
    .where('tenant_id', '=', idempotent.tenantId)
    .where('route', '=', idempotent.route)
    .where('key', '=', idempotent.key)
    .where('resource_id', '=', earlier.resourceId)
    .execute();
  return undefined;
}

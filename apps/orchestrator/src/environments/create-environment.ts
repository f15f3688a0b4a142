/**
 * `POST /v1/environments`: checked, admitted, started; running when it resolves, or, with `wait: false`, provisioning and on its way. When there is no room
 * and it may wait (`queue_timeout_seconds`), the row is queued: whoever serves the queue finds it a place, and the request waits with it.
 * With an Idempotency-Key there is one environment however often it is asked for: the key is claimed in the transaction that admits, everybody
 * else waits for the same start and gets the same answer. A start that failed leaves the key free, unless nobody waited for it: then what became of
 * it is the answer.
 */

import { randomUUID } from 'node:crypto';
import { AppError, type CreateEnvironment, canonicalPolicy, DEFAULT_IMAGE, Environment } from '@fuse/contract';
import type { Tx } from '../db/db.ts';
import type { EnvironmentRow, Exposed } from '../db/schema.ts';
import { hostById } from '../hosts/host-store.ts';
import type { IdempotentRequest } from '../idempotency/idempotency-key.ts';
import { claimKey, findAnswer, forgetKey, recordResponse } from '../idempotency/idempotency-store.ts';
import { chooseNetwork } from '../network/choose-network.ts';
import { lockLimits } from '../quotas/quota-store.ts';
import type { RateStanding } from '../quotas/quotas.ts';
import { tellingRate } from '../quotas/take-quota.ts';
import { acceptAdmission } from './accept-admission.ts';
import { type Admission, enqueue, isConflictWithDying, rejectionError } from './admission.ts';
import { checkSpec, isGone, toEnvironment } from './environment.ts';
import type { EnvironmentContext } from './environment-context.ts';
import type { EnvironmentService } from './environment-service.ts';
import { environmentById, lifetimeOf } from './environment-store.ts';
import { checkSavesNothing } from './gpus.ts';
import { awaitPlace } from './queueing/await-place.ts';
import { seeded } from './seed.ts';
import { INTERRUPTED } from './start-environment.ts';
import { measured } from './start-steps.ts';
import { checkStartup, startupOf } from './startup.ts';

export interface Creation {
  tenantId: string;
  /** The API key that asks for it. */
  keyId?: string | undefined;
  request: CreateEnvironment;
  idempotent: IdempotentRequest | undefined;
  /** Of the client: without a key nobody could find what goes on after it left, so the start, or the place in the queue, is given up. */
  signal: AbortSignal;
  /** This process stops: what waits for room waits on without the request. */
  stopping?: AbortSignal | undefined;
  /** Hears how the rate of creates stands, where there is a limit. */
  onCreateRate?: ((rate: RateStanding) => void) | undefined;
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
  creation: Creation,
): Promise<Created> {
  const { request, idempotent } = creation;
  checkSpec(request.spec ?? {});
  checkStartup(request);
  checkSavesNothing(request);
  if (request.network !== undefined) canonicalPolicy(request.network);
  if (idempotent !== undefined) return createOnce(context, service, creation, idempotent);
  await requirePlace(context, service, request);
  const admitted = await measured(context, 'admit', () =>
    tellingRate(creation.onCreateRate, (onCreateRate) =>
      admitOrQueue(context, service, planOf(context, { ...creation, onCreateRate }), request),
    ),
  );
  if (request.wait === false) startLater(service, admitted);
  const row = request.wait === false ? admitted : await startNow(context, service, admitted, creation);
  return { environment: toEnvironment(row, context.publicAddress()), replayed: false };
}

function planOf(
  { sealer, network: networks }: EnvironmentContext,
  { tenantId, keyId, request, onCreateRate }: Omit<Creation, 'idempotent' | 'signal'>,
  uid?: string,
): Plan {
  const { seed_snapshot_id } = request;
  const asked = request.network && canonicalPolicy(request.network);
  return async (tx) => {
    await lockLimits(tx, tenantId); // before hosts
    return acceptAdmission(tx, await wishOf(tx), { told: onCreateRate });
  };

  async function wishOf(tx: Tx): Promise<Admission> {
    const seed = seed_snapshot_id ? await seeded(tx, sealer, tenantId, { ...request, seed_snapshot_id }) : undefined;
    return {
      tenantId,
      taskId: request.task_id,
      spec: request.spec ?? {},
      env: request.env ?? {},
      labels: request.labels,
      keyId,
      lifetime: lifetimeOf(request),
      interior: {
        startup: startupOf(request),
        healthcheck: request.healthcheck,
        expose: request.expose?.map(toExposed),
        desktop: request.desktop,
        gatewayUrl: request.gateway_url || null,
      },
      ...seed,
      network: await chooseNetwork(tx, networks, { tenantId, asked, inherited: seed?.network }),
      ...(uid === undefined ? {} : { uid }),
    };
  }
}

const toExposed = ({ port, as }: { port: number; as?: string | undefined }): Exposed => ({
  port,
  ...(as === undefined ? {} : { as }),
});

async function requirePlace(
  context: EnvironmentContext,
  service: EnvironmentService,
  { spec = {}, seed_snapshot_id, queue_timeout_seconds = 0 }: CreateEnvironment,
): Promise<void> {
  const hostId = spec.host_id || undefined;
  if (hostId !== undefined && (await hostById(context.db.query, hostId)) === undefined)
    throw rejectionError({
      kind: 'no_such_host',
      message: `spec.host_id: host "${hostId}" is not registered`,
      hosts: [],
    });
  if (seed_snapshot_id) return;
  try {
    await service.requireImage(spec.image || DEFAULT_IMAGE, 'spec.image');
  } catch (error) {
    const waits = queue_timeout_seconds > 0 && error instanceof AppError && error.details?.reason === 'no_room';
    if (!waits) throw error; // without any host nobody knows what images there will be
  }
}

/** Of one that waits for room, whoever serves the queue begins the start. */
function startLater(service: EnvironmentService, row: EnvironmentRow): void {
  if (row.queue_deadline === null) service.startUnwaited(row.uid);
}

async function startNow(
  context: EnvironmentContext,
  service: EnvironmentService,
  row: EnvironmentRow,
  { signal, stopping = NEVER }: Partial<Pick<Creation, 'signal' | 'stopping'>>,
): Promise<EnvironmentRow> {
  if (row.queue_deadline !== null) await awaitPlace(context, row.uid, { signal, stopping });
  return service.start(row.uid, { signal });
}

const NEVER = new AbortController().signal;

/** Admits, lets it wait for room if it may, or refuses; itself it waits only for the task's own former environment to be gone. */
async function admitOrQueue(
  context: EnvironmentContext,
  service: EnvironmentService,
  plan: Plan,
  { queue_timeout_seconds: timeoutSeconds = 0, wait }: CreateEnvironment,
  first: (tx: Tx) => Promise<void> = async () => {},
): Promise<EnvironmentRow> {
  for (let waits = 0; ; waits += 1) {
    let wanted: Admission | undefined;
    try {
      return await context.db.transaction(async (tx) => {
        await first(tx);
        wanted = await plan(tx);
        const refused = await service.admit(tx, wanted);
        if (refused.kind === 'admitted') return refused.environment;
        const mayWait = timeoutSeconds > 0 && (refused.kind === 'no_room' || refused.kind === 'over_quota');
        if (!mayWait) throw rejectionError(refused, { mayWait: true });
        return enqueue(context, tx, wanted, { refused, timeoutSeconds, isAwaited: wait !== false });
      });
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
  creation: Omit<Creation, 'idempotent' | 'signal'>,
  idempotent: IdempotentRequest,
): Promise<Created> {
  const { request, stopping = NEVER } = creation;
  for (let tries = 1; ; tries += 1) {
    const earlier = await replay(context, service, creation, idempotent);
    if (earlier !== undefined) return { environment: earlier, replayed: true };
    await requirePlace(context, service, request);
    const uid = randomUUID();
    try {
      const claim = async (tx: Tx) => {
        if (!(await claimKey(tx, idempotent, uid))) throw new KeyTaken();
      };
      const admitted = await measured(context, 'admit', () =>
        tellingRate(creation.onCreateRate, (onCreateRate) =>
          admitOrQueue(context, service, planOf(context, { ...creation, onCreateRate }, uid), request, claim),
        ),
      );
      if (request.wait === false) {
        startLater(service, admitted);
        return { environment: toEnvironment(admitted, context.publicAddress()), replayed: false };
      }
      const environment = toEnvironment(
        await startNow(context, service, admitted, { stopping }),
        context.publicAddress(),
      );
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
  { request: { wait }, stopping = NEVER }: Pick<Creation, 'request' | 'stopping'>,
  idempotent: IdempotentRequest,
): Promise<Environment | undefined> {
  const earlier = await findAnswer(context.db.query, idempotent);
  if (earlier === undefined) return undefined;
  if (earlier.response !== null) return Environment.parse(earlier.response);
  const row = await service.get(context.db.query, earlier.resourceId);
  if (wait === false && row !== undefined) return toEnvironment(row, context.publicAddress());
  if (row !== undefined && !isGone(row.state) && row.state !== 'destroying') {
    try {
      return toEnvironment(await startNow(context, service, row, { stopping }), context.publicAddress());
    } catch (error) {
      const now = await service.get(context.db.query, row.uid);
      // Whoever drove it had died, and another process gave it up before we could go on with it.
      if (now?.error !== INTERRUPTED) throw error;
    }
  }
  await forgetKey(context.db.query, idempotent, earlier.resourceId);
  return undefined;
}

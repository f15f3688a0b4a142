/**
 * `POST /v1/environments/{id}/snapshots`: `ready` when it resolves. With an Idempotency-Key there is one snapshot however often it is asked for;
 * one that failed leaves the key free.
 */
import { AppError, type CreateSnapshot, Snapshot } from '@fuse/contract';
import { sleep } from '@fuse/runtime';
import type { SnapshotRow } from '../db/schema.ts';
import { environmentById } from '../environments/environment-store.ts';
import type { IdempotentRequest } from '../idempotency/idempotency-key.ts';
import { claimKey, findAnswer, forgetKey, recordResponse } from '../idempotency/idempotency-store.ts';
import { isSettled, toSnapshot } from './snapshot.ts';
import type { SnapshotContext } from './snapshot-context.ts';
import type { SnapshotService } from './snapshot-service.ts';
import { snapshotById } from './snapshot-store.ts';
import { beginSnapshot, newSnapshotId } from './take-snapshot.ts';

export interface SnapshotCreation {
  tenantId: string;
  vmId: string;
  /** The API key that asks for it. */
  keyId?: string | undefined;
  request: CreateSnapshot;
  idempotent: IdempotentRequest | undefined;
}

export interface CreatedSnapshot {
  snapshot: Snapshot;
  /** An earlier request's answer. */
  replayed: boolean;
}

const MAX_KEY_TRIES = 5;

export async function createSnapshot(
  context: SnapshotContext,
  service: SnapshotService,
  creation: SnapshotCreation,
): Promise<CreatedSnapshot> {
  const { idempotent } = creation;
  for (let tries = 1; ; tries += 1) {
    const earlier = idempotent === undefined ? undefined : await replay(context, service, idempotent);
    if (earlier !== undefined) return { snapshot: earlier, replayed: true };
    const row = await begin(context, creation);
    if (row === undefined) {
      if (tries < MAX_KEY_TRIES) continue; // another request has the key now
      throw new AppError('conflict', 'this Idempotency-Key is in use', { retryAfterSeconds: 1 });
    }
    const taking = service.take(row, async (tx, ready) => {
      if (idempotent !== undefined) await recordResponse(tx, idempotent, toSnapshot(ready));
    });
    return { snapshot: toSnapshot(await taking.ready), replayed: false };
  }
}

/** Undefined: the key is taken. */
async function begin(
  context: SnapshotContext,
  { tenantId, vmId, keyId, request, idempotent }: SnapshotCreation,
): Promise<SnapshotRow | undefined> {
  const id = newSnapshotId();
  return context.db.transaction(async (tx) => {
    if (idempotent !== undefined && !(await claimKey(tx, idempotent, id))) return undefined;
    const environment = await environmentById(tx, tenantId, vmId);
    if (environment === undefined) throw new AppError('not_found', `vm ${vmId} not found`);
    return beginSnapshot(context, tx, { id, environment, request, keyId });
  });
}

const LOOK_AGAIN_MS = 250;

/** Undefined when the key is free, also because nothing came of the request that used it. */
async function replay(
  context: SnapshotContext,
  service: SnapshotService,
  idempotent: IdempotentRequest,
): Promise<Snapshot | undefined> {
  for (;;) {
    const earlier = await findAnswer(context.db.query, idempotent);
    if (earlier === undefined) return undefined;
    if (earlier.response !== null) return Snapshot.parse(earlier.response);
    const row = await snapshotById(context.db.query, earlier.resourceId);
    if (row !== undefined && (row.state === 'ready' || row.state === 'restoring')) return toSnapshot(row);
    if (row === undefined || isSettled(row.state) || row.state === 'deleting') {
      await forgetKey(context.db.query, idempotent, earlier.resourceId);
      return undefined;
    }
    // This process's own, or another's.
    const taking = service.taking(row.id);
    if (taking === undefined) await sleep(LOOK_AGAIN_MS, context.stopping);
    else await taking.ready;
  }
}

/** What is made in one transaction, once for each Idempotency-Key, however often and from wherever it is asked for. */
import { AppError } from '@fuse/contract';
import type { Db, Tx } from '../db/db.ts';
import { openJson, type SealedJson, sealJson } from '../secrets/sealed-json.ts';
import { sealedAt } from '../secrets/sealed-places.ts';
import type { Sealer } from '../secrets/sealer.ts';
import type { IdempotentRequest } from './idempotency-key.ts';
import { claimKey, findAnswer, recordResponse } from './idempotency-store.ts';

export interface Making<Answer> {
  resourceId: string;
  make: (tx: Tx) => Promise<Answer>;
  /** What is kept of the answer, to be given to whoever repeats the request. */
  kept: (answer: Answer) => Answer;
}

const MAX_TRIES = 5;

export async function makeOnce<Answer>(
  db: Db,
  request: IdempotentRequest | undefined,
  { resourceId, make, kept }: Making<Answer>,
): Promise<{ answer: Answer; replayed: boolean }> {
  if (request === undefined) return { answer: await db.transaction(make), replayed: false };
  for (let attempt = 0; attempt < MAX_TRIES; attempt += 1) {
    const answer = await db.transaction(async (tx) => {
      if (!(await claimKey(tx, request, resourceId))) return undefined;
      const made = await make(tx);
      await recordResponse(tx, request, kept(made));
      return made;
    });
    if (answer !== undefined) return { answer, replayed: false };
    const earlier = await findAnswer(db.query, request);
    // As `kept` made it.
    if (earlier !== undefined) return { answer: earlier.response as Answer, replayed: true };
  }
  throw new AppError('conflict', 'this Idempotency-Key changes hands too quickly', { retryAfterSeconds: 1 });
}

/** For what is to be given again although it is a secret: it is kept sealed. */
export async function makeSecretOnce<Answer extends object>(
  db: Db,
  sealer: Sealer,
  request: IdempotentRequest | undefined,
  { resourceId, make }: Omit<Making<Answer>, 'kept'>,
): Promise<{ answer: Answer; replayed: boolean }> {
  if (request === undefined) return { answer: await db.transaction(make), replayed: false };
  const context = sealedAt('idempotency_keys.response', `${request.tenantId} ${request.route} ${request.key}`);
  let made: Answer | undefined;
  const { answer, replayed } = await makeOnce<SealedJson<Answer>>(db, request, {
    resourceId,
    make: async (tx) => {
      made = await make(tx);
      return sealJson(sealer, made, context);
    },
    kept: (sealed) => sealed,
  });
  return { answer: replayed || made === undefined ? openJson(sealer, answer, context) : made, replayed };
}

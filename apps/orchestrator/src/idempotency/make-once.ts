/** What is made in one transaction, once for each Idempotency-Key, however often and from wherever it is asked for. */
import { AppError } from '@fuse/contract';
import type { Db, Tx } from '../db/db.ts';
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
    if (earlier !== undefined) return { answer: earlier.response as Answer, replayed: true }; // as `kept` made it
  }
  throw new AppError('conflict', 'this Idempotency-Key changes hands too quickly', { retryAfterSeconds: 1 });
}

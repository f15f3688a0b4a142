/** A request that waits with its environment: while it does, it holds the row's lease, and whoever serves the queue leaves the start to it. */
import { AppError } from '@fuse/contract';
import type { EnvironmentRow } from '../../db/schema.ts';
import { saysQuotaExceeded } from '../../quotas/quotas.ts';
import { whyOf } from '../admission.ts';
import { isGone } from '../environment.ts';
import type { EnvironmentContext } from '../environment-context.ts';
import { environmentByUid, releaseLease, takeLease, transition } from '../environment-store.ts';

export interface Patience {
  /** The client went away: the place is given up. Absent: waited to the end, whoever is there. */
  signal?: AbortSignal | undefined;
  /** This process stops: the environment waits on without us. */
  stopping: AbortSignal;
}

const CLIENT_GONE = 'its client went away while it waited for room';

/**
 * Resolves when it has a place (also when it waits for none), with the start left to the caller. Throws what it came to instead: 503 when there was no
 * room in time.
 */
export async function awaitPlace(
  context: EnvironmentContext,
  uid: string,
  { signal, stopping }: Patience,
): Promise<void> {
  using news = context.hub.waiter(`environment:${uid}`);
  using _lease = holdLease(context, uid);
  using cut = whenEither(stopping, signal);
  for (;;) {
    const row = await environmentByUid(context.db.query, uid);
    if (row === undefined || isGone(row.state) || row.state === 'destroying') throw withoutPlace(row);
    if (row.queue_deadline === null) return;
    if (stopping.aborted) {
      await releaseLease(context.db.query, uid, context.owner);
      throw stopsWaiting(row);
    }
    if (signal?.aborted) {
      if (await giveUp(context, row)) throw signal.reason;
      continue;
    }
    await news.next(cut.signal).catch(() => {}); // looked at above
  }
}

/** Not AbortSignal.any: `stopping` lives as long as the process, and so would what is made of it. */
function whenEither(...signals: (AbortSignal | undefined)[]): Disposable & { signal: AbortSignal } {
  const either = new AbortController();
  const abort = () => either.abort();
  for (const signal of signals) {
    signal?.addEventListener('abort', abort, { once: true });
    if (signal?.aborted) abort();
  }
  return {
    signal: either.signal,
    [Symbol.dispose]: () => {
      for (const signal of signals) signal?.removeEventListener('abort', abort);
    },
  };
}

function holdLease(context: EnvironmentContext, uid: string): Disposable {
  const renewal = setInterval(() => {
    takeLease(context.db.query, uid, context.owner, context.startLeaseMs).catch((error: unknown) =>
      context.log.warn({ err: error, uid }, 'lease of a waiting environment not renewed'),
    );
  }, context.startLeaseMs / 3);
  return { [Symbol.dispose]: () => clearInterval(renewal) };
}

/** False when it has just got a place, or was destroyed. */
async function giveUp(context: EnvironmentContext, row: EnvironmentRow): Promise<boolean> {
  const changed = await context.db.transaction((tx) => transition(tx, row, 'failed', CLIENT_GONE));
  return changed !== undefined;
}

function withoutPlace(row: EnvironmentRow | undefined): AppError {
  if (row?.state !== 'failed')
    return new AppError('conflict', `environment ${row?.id ?? ''} was destroyed while it waited for room`);
  const hosts =
    row.placement?.hosts.map(({ host_id, reason }) => ({ hostId: host_id, ...(reason && { reason }) })) ?? [];
  return new AppError('unavailable', row.error ?? 'no room', {
    details: { reason: saysQuotaExceeded(row.placement?.reason ?? '') ? 'quota_exceeded' : 'no_room', ...whyOf(hosts) },
    hint: 'Try again when other environments have gone, or wait longer.',
    retryAfterSeconds: 5,
  });
}

const stopsWaiting = (row: EnvironmentRow): AppError =>
  new AppError('unavailable', `the orchestrator stops; vm ${row.id} waits for room on without this request`, {
    details: { reason: 'queued', id: row.id },
    hint: `GET /v1/environments/${row.id} tells what becomes of it.`,
    retryAfterSeconds: 1,
  });

/** What an error of either engine means to us. */
import { AppError } from '@fuse/contract';

const sqlState = (error: unknown): string | undefined =>
  typeof error === 'object' && error !== null && 'code' in error && typeof error.code === 'string'
    ? error.code
    : undefined;

/** Serialisation failure or deadlock: nothing happened, the transaction may be run again. */
export function isRetryableTransactionError(error: unknown): boolean {
  const state = sqlState(error);
  return state === '40001' || state === '40P01';
}

const CONNECTION_ERRORS = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ENOTFOUND',
  'EPIPE',
  'ETIMEDOUT',
  'ENOENT',
  'EAI_AGAIN',
]);

function isConnectionLoss(error: unknown): boolean {
  const state = sqlState(error);
  if (state !== undefined) {
    // 08: connection exceptions. 57P01-03: shut down, crashed, starting up. 53300: too many connections.
    if (CONNECTION_ERRORS.has(state) || /^08|^57P0[123]$|^53300$/.test(state)) return true;
  }
  return (
    error instanceof Error &&
    /connection terminated|not queryable|client was closed|timeout exceeded when trying to connect/i.test(error.message)
  );
}

/** Whether this is `fromDatabaseError`'s answer to a lost connection. */
export const isLostConnection = (error: unknown): boolean => error instanceof AppError && isConnectionLoss(error.cause);

const TEXT_HOLDS_NUL = 'text must not hold a NUL character';
export const isOfNul = (error: unknown): error is AppError =>
  error instanceof AppError && error.message === TEXT_HOLDS_NUL;

/** Turns what a caller can understand into an AppError; anything else is returned as it is. */
export function fromDatabaseError(error: unknown): unknown {
  const state = sqlState(error);
  // 22021, 22P05: text holds a NUL, which PostgreSQL cannot store.
  if (state === '22021' || state === '22P05') return new AppError('invalid_argument', TEXT_HOLDS_NUL, { cause: error });
  if (isConnectionLoss(error))
    return new AppError('unavailable', 'the database cannot be reached', { cause: error, retryAfterSeconds: 1 });
  if (state === '57014')
    return new AppError('unavailable', 'the database took too long to answer', { cause: error, retryAfterSeconds: 1 });
  return error;
}

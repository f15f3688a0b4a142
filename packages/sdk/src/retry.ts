/**
 * When a call is made again. Pure but for `withRetries`.
 * - `freely` (reads, deletes, creates under an idempotency key): after a lost connection, and after answers that say "not now": 429, 502,
 *   503 and 504 with `Retry-After`, or from something in between that does not speak our API. Without it our server means "never".
 * - `unless-refused`: after a lost connection only.
 * - `if-unsent` (all others): only when the request surely never left, so that no command can run twice.
 * - `Retry-After` is kept to; one longer than MAX_RETRY_AFTER_MS is the caller's to decide on.
 */
import { FuseApiError, FuseConnectionError, FuseTimeoutError } from './errors.ts';
import { sleep } from './sleep.ts';

const FIRST_DELAY_MS = 150;
const MAX_DELAY_MS = 5_000;
export const MAX_RETRY_AFTER_MS = 30_000;

export type Random = () => number;
export type Repeat = 'freely' | 'unless-refused' | 'if-unsent' | 'never';

export interface RetryPolicy {
  repeat: Repeat;
  retries: number;
  random: Random;
}

/** Exponential with full jitter, never under a tenth of its ceiling: many clients cut at once do not come back at once. */
export function backoffMs(attempt: number, random: Random): number {
  const ceiling = Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** attempt);
  return Math.round(ceiling * (0.1 + 0.9 * random()));
}

const passing: readonly number[] = [429, 502, 503, 504];
/** Answers about the command or the caller's own deadline: asking again cannot change them. */
const final: readonly string[] = ['vm_lost', 'deadline_exceeded'];

export function isPassing(error: unknown): boolean {
  if (error instanceof FuseTimeoutError) return false;
  if (error instanceof FuseConnectionError) return true;
  if (!(error instanceof FuseApiError) || !passing.includes(error.status) || final.includes(error.code)) return false;
  return error.code === '' || error.retryAfterMs !== undefined;
}

/** Milliseconds to wait before the next attempt; undefined: give up. */
export function retryDelayMs(error: unknown, attempt: number, policy: RetryPolicy): number | undefined {
  if (attempt >= policy.retries) return undefined;
  if (!mayRepeat(error, policy.repeat)) return undefined;
  const asked = error instanceof FuseApiError ? error.retryAfterMs : undefined;
  if (asked === undefined) return backoffMs(attempt, policy.random);
  return asked > MAX_RETRY_AFTER_MS ? undefined : asked + backoffMs(0, policy.random);
}

function mayRepeat(error: unknown, repeat: Repeat): boolean {
  if (error instanceof FuseConnectionError && !error.sent) return repeat !== 'never';
  if (repeat === 'unless-refused') return error instanceof FuseConnectionError && isPassing(error);
  return repeat === 'freely' && isPassing(error);
}

export async function withRetries<T>(
  policy: RetryPolicy & { signal?: AbortSignal | undefined },
  call: (attempt: number) => Promise<T>,
): Promise<T> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await call(attempt);
    } catch (error) {
      const delayMs = retryDelayMs(error, attempt, policy);
      if (delayMs === undefined) throw error;
      await sleep(delayMs, policy.signal);
    }
  }
}

/** Calls to a host that may be away for a moment: its agent restarts, the network hiccups. Every call may be repeated. */
import { AppError } from '@fuse/contract';
import { sleep } from '@fuse/runtime';
import { isHostUnreachable } from '../../hosts/host-transport.ts';

const FIRST_DELAY_MS = 50;
const LONGEST_DELAY_MS = 1_000;

export interface RetryOptions {
  signal: AbortSignal;
  /** From the first failure in a row. Then the last error is thrown. */
  giveUpAfterMs: number;
  /** What else than an unreachable host is worth another try. */
  also?: (error: unknown) => boolean;
}

export async function untilHostAnswers<T>(call: () => Promise<T>, options: RetryOptions): Promise<T> {
  const { signal, giveUpAfterMs, also = () => false } = options;
  const giveUpAt = performance.now() + giveUpAfterMs;
  for (let delayMs = FIRST_DELAY_MS; ; delayMs = Math.min(delayMs * 2, LONGEST_DELAY_MS)) {
    signal.throwIfAborted();
    try {
      return await call();
    } catch (error) {
      signal.throwIfAborted();
      const worthIt = isHostUnreachable(error) || also(error);
      if (!worthIt || performance.now() + delayMs > giveUpAt) throw error;
    }
    await sleep(delayMs, signal);
  }
}

export const hasCode = (error: unknown, ...codes: AppError['code'][]): error is AppError =>
  error instanceof AppError && codes.includes(error.code);

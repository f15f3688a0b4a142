/** Waiting that can be cut short, and deadlines that are always cleared. */
import { setTimeout as delay } from 'node:timers/promises';

/** Rejects with the signal's own reason. */
export async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  try {
    await delay(ms, undefined, signal === undefined ? {} : { signal });
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  }
}

export class DeadlineError extends Error {
  override readonly name = 'DeadlineError';
}

/** Runs `work` with a signal that aborts after `ms` (or with `outer`); rejects with DeadlineError naming `what` when time is up, even if `work` does not listen. */
export async function withDeadline<T>(
  ms: number,
  what: string,
  work: (signal: AbortSignal) => Promise<T>,
  outer?: AbortSignal,
): Promise<T> {
  outer?.throwIfAborted();
  const controller = new AbortController();
  let reject: (reason: unknown) => void = () => {};
  const stopped = new Promise<never>((_, no) => {
    reject = no;
  });
  stopped.catch(() => {});
  const timer = setTimeout(() => {
    const error = new DeadlineError(`${what} took longer than ${ms} ms`);
    reject(error);
    controller.abort(error);
  }, ms);
  const onOuter = () => {
    reject(outer?.reason);
    controller.abort(outer?.reason);
  };
  outer?.addEventListener('abort', onOuter, { once: true });
  try {
    return await Promise.race([work(controller.signal), stopped]);
  } finally {
    clearTimeout(timer);
    outer?.removeEventListener('abort', onOuter);
  }
}

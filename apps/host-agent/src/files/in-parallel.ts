import { setMaxListeners } from 'node:events';

/**
 * Runs `work` for every item, at most `limit` at a time; results in the items' order. The first failure stops the others (their signal
 * aborts) and is thrown once all have come to an end.
 */
export async function inParallel<T, R>(
  items: readonly T[],
  limit: number,
  signal: AbortSignal,
  work: (item: T, stop: AbortSignal, index: number) => Promise<R>,
): Promise<R[]> {
  const results = new Array<R>(items.length);
  const failed = new AbortController();
  const stop = AbortSignal.any([signal, failed.signal]);
  setMaxListeners(0, stop);
  const queue = items.entries();
  const worker = async () => {
    for (const [index, item] of queue) {
      stop.throwIfAborted();
      results[index] = await work(item, stop, index);
    }
  };
  const workers = Array.from({ length: Math.min(limit, items.length) }, () =>
    worker().catch((error: unknown) => {
      failed.abort(error);
    }),
  );
  await Promise.all(workers);
  stop.throwIfAborted();
  return results;
}

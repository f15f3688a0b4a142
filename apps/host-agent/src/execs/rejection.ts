/** A promise that rejects with the signal's reason once it aborts, for `Promise.race`. `forget` lets go of the signal. */
export function rejection(signal: AbortSignal): { promise: Promise<never>; forget: () => void } {
  let onAbort = () => {};
  const promise = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal.reason);
  });
  promise.catch(() => {});
  if (signal.aborted) onAbort();
  signal.addEventListener('abort', onAbort, { once: true });
  return { promise, forget: () => signal.removeEventListener('abort', onAbort) };
}

/** Wakes all who wait. A waiter checks its condition and calls `wait` in one go, so no wake-up is missed. */
export class Notifier {
  readonly #waiting = new Set<() => void>();

  notify(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const wake of waiting) wake();
  }

  /** Resolves at the next `notify`, after `timeoutMs`, or when the signal aborts: the caller looks again at what it waits for. */
  wait(options: { timeoutMs?: number; signal?: AbortSignal } = {}): Promise<void> {
    const { timeoutMs, signal } = options;
    return new Promise((resolve) => {
      let timer: NodeJS.Timeout | undefined;
      const wake = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', wake);
        this.#waiting.delete(wake);
        resolve();
      };
      if (signal?.aborted) return resolve();
      if (timeoutMs !== undefined) timer = setTimeout(wake, timeoutMs);
      signal?.addEventListener('abort', wake, { once: true });
      this.#waiting.add(wake);
    });
  }
}

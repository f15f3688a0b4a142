/** One waiter, many wakers. A wake that comes while nobody waits is kept. */
export class Wakeup {
  #woken = false;
  #resume: (() => void) | undefined;

  wake(): void {
    this.#woken = true;
    this.#resume?.();
  }

  /** Resolves when woken, after `withinMs`, or when the signal is aborted. */
  async next(withinMs: number, signal: AbortSignal): Promise<void> {
    if (!this.#woken && !signal.aborted)
      await new Promise<void>((resolve) => {
        const timer = setTimeout(() => this.#resume?.(), withinMs); // also takes the listener off the signal
        this.#resume = () => {
          clearTimeout(timer);
          signal.removeEventListener('abort', resume);
          resolve();
        };
        const resume = this.#resume;
        signal.addEventListener('abort', resume, { once: true });
      });
    this.#resume = undefined;
    this.#woken = false;
  }
}

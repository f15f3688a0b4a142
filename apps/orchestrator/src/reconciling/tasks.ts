/** Work that the loop starts and does not wait for: at most one of a name at a time, so that one hung VM stops nothing else. */
import type { Logger } from '@fuse/runtime';

const MAX_RUNNING = 32;

export class Tasks {
  readonly #running = new Map<string, Promise<void>>();
  readonly #log: Logger;

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Does nothing when it is running already, or when too many are: the next cycle asks again. */
  start(name: string, work: () => Promise<unknown>): void {
    if (this.#running.has(name) || this.#running.size >= MAX_RUNNING) return;
    const promise = work()
      .then(() => {})
      .catch((error: unknown) =>
        this.#log.warn({ err: error, task: name }, 'reconciling step failed, tried again later'),
      )
      .finally(() => this.#running.delete(name));
    this.#running.set(name, promise);
  }

  async settled(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running.values());
  }
}

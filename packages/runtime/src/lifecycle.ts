/** A process's life: start, wait for a signal, dispose in reverse order, each step with a deadline. */
import type { Logger } from './logger.ts';

export type StopReason = 'SIGTERM' | 'SIGINT' | 'SIGHUP';

/** Resolves with the first of the signals; a second one ends the process at once with 128+n. */
export function waitForStopSignal(
  signals: readonly StopReason[] = ['SIGTERM', 'SIGINT', 'SIGHUP'],
): Promise<StopReason> {
  return new Promise((resolve) => {
    let seen = false;
    for (const signal of signals) {
      process.on(signal, () => {
        if (seen) process.exit(signal === 'SIGINT' ? 130 : 143);
        seen = true;
        resolve(signal);
      });
    }
  });
}

/** Collects what was started; disposing goes backwards and never stops at one failure. */
export class Disposables implements AsyncDisposable {
  readonly #stack: { name: string; dispose: () => PromiseLike<void> | void }[] = [];
  readonly #log: Logger;

  constructor(log: Logger) {
    this.#log = log;
  }

  add<T extends AsyncDisposable>(name: string, value: T): T {
    this.#stack.push({ name, dispose: () => value[Symbol.asyncDispose]() });
    return value;
  }

  defer(name: string, dispose: () => PromiseLike<void> | void): void {
    this.#stack.push({ name, dispose });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (let entry = this.#stack.pop(); entry !== undefined; entry = this.#stack.pop()) {
      try {
        await entry.dispose();
      } catch (error) {
        this.#log.error({ err: error, part: entry.name }, 'dispose failed');
      }
    }
  }
}

/** Work that is done every so often by one process at a time: whoever holds the lease. A round that fails is logged, and the next one tries again. */
import { type Logger, sleep } from '@fuse/runtime';
import type { LeaderLease } from './leader-lease.ts';

export interface LeasedLoopOptions {
  /** For the log. */
  what: string;
  log: Logger;
  lease: LeaderLease;
  intervalMs: number;
}

export class LeasedLoop implements AsyncDisposable {
  readonly #options: LeasedLoopOptions;
  readonly #round: (signal: AbortSignal) => Promise<void>;
  readonly #stop = new AbortController();
  #loop: Promise<void> = Promise.resolve();

  constructor(options: LeasedLoopOptions, round: (signal: AbortSignal) => Promise<void>) {
    this.#options = options;
    this.#round = round;
  }

  start(): void {
    this.#loop = this.#run();
  }

  async #run(): Promise<void> {
    const { what, log, lease, intervalMs } = this.#options;
    const { signal } = this.#stop;
    while (!signal.aborted) {
      try {
        if ((await lease.hold()) !== undefined) await this.#round(signal);
      } catch (error) {
        if (!signal.aborted) log.error({ err: error }, `${what} failed`);
      }
      await sleep(intervalMs, signal).catch(() => {}); // stopped
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort(new Error('the orchestrator stops'));
    await this.#loop;
    await this.#options.lease.release().catch(() => {}); // it ends by itself
  }
}

/** Frees chunks that nothing refers to any more, every so often. One process at a time, to spare the others the work. */
import { type Clock, type Logger, sleep } from '@fuse/runtime';
import type { LeaderLease } from '../../reconciling/leader-lease.ts';
import { type CollectContext, collectChunks } from './collect-chunks.ts';
import { sweepStore } from './sweep-store.ts';

export interface ChunkCollectorOptions extends CollectContext {
  log: Logger;
  clock: Clock;
  lease: LeaderLease;
  intervalMs: number;
  sweepEveryMs: number;
}

export class ChunkCollector implements AsyncDisposable {
  readonly #options: ChunkCollectorOptions;
  readonly #stop = new AbortController();
  #loop: Promise<void> = Promise.resolve();
  #sweptAt: number;

  constructor(options: ChunkCollectorOptions) {
    this.#options = options;
    this.#sweptAt = options.clock.monotonic();
  }

  start(): void {
    this.#loop = this.#run();
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      try {
        if ((await this.#options.lease.hold()) !== undefined) await this.#collect(signal);
      } catch (error) {
        if (!signal.aborted) this.#options.log.error({ err: error }, 'collecting chunks failed');
      }
      await sleep(this.#options.intervalMs, signal).catch(() => {}); // stopped
    }
  }

  async #collect(signal: AbortSignal): Promise<void> {
    const { log, clock, sweepEveryMs } = this.#options;
    const isSweep = clock.monotonic() - this.#sweptAt >= sweepEveryMs;
    if (isSweep) this.#sweptAt = clock.monotonic();
    const collected = isSweep
      ? await sweepStore(this.#options, signal)
      : await collectChunks(this.#options, { signal });
    if (collected.objects > 0)
      log.info({ objects: collected.objects, freed_bytes: collected.bytes }, 'objects of deleted snapshots were freed');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort(new Error('the orchestrator stops'));
    await this.#loop;
    await this.#options.lease.release().catch(() => {}); // it ends by itself
  }
}

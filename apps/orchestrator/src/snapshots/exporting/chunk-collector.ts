/** Frees chunks that nothing refers to any more, every so often. One process at a time, to spare the others the work. */
import type { Clock, Logger } from '@fuse/runtime';
import type { LeaderLease } from '../../reconciling/leader-lease.ts';
import { LeasedLoop } from '../../reconciling/leased-loop.ts';
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
  readonly #loop: LeasedLoop;
  #sweptAt: number;

  constructor(options: ChunkCollectorOptions) {
    this.#options = options;
    this.#loop = new LeasedLoop({ ...options, what: 'collecting chunks' }, (signal) => this.#collect(signal));
    this.#sweptAt = options.clock.monotonic();
  }

  start(): void {
    this.#loop.start();
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

  [Symbol.asyncDispose](): Promise<void> {
    return this.#loop[Symbol.asyncDispose]();
  }
}

/** Deletes archives of execs whose time is up. One process at a time, to spare the others the work. */
import type { ObjectStore } from '@fuse/object-store';
import type { Logger } from '@fuse/runtime';
import type { Db } from '../db/db.ts';
import type { LeaderLease } from '../reconciling/leader-lease.ts';
import { LeasedLoop } from '../reconciling/leased-loop.ts';
import { expiredArchives, forgetArchive } from './gone-environments.ts';

const BATCH = 100;

export interface ArchiveCollectorOptions {
  db: Db;
  objectStore: ObjectStore;
  log: Logger;
  lease: LeaderLease;
  intervalMs: number;
}

export class ArchiveCollector implements AsyncDisposable {
  readonly #options: ArchiveCollectorOptions;
  readonly #loop: LeasedLoop;

  constructor(options: ArchiveCollectorOptions) {
    this.#options = options;
    this.#loop = new LeasedLoop({ ...options, what: 'collecting archives of execs' }, (signal) => this.collect(signal));
  }

  start(): void {
    this.#loop.start();
  }

  /** One round. */
  async collect(signal: AbortSignal): Promise<void> {
    const { db, objectStore, log } = this.#options;
    let collected = 0;
    for (;;) {
      const expired = await expiredArchives(db.query, BATCH);
      if (expired.length === 0) break;
      for (const { uid, archive_key } of expired) {
        signal.throwIfAborted();
        // The object first: a row without it can be found again, it without a row cannot.
        await objectStore.delete(archive_key);
        await forgetArchive(db.query, uid);
        collected += 1;
      }
    }
    if (collected > 0) log.info({ archives: collected }, 'archives of execs that had expired were deleted');
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#loop[Symbol.asyncDispose]();
  }
}

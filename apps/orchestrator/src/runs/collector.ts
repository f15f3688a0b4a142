/**
 * Forgets what is old: ended runs with their outputs and events, uploads, idempotency keys, sessions, API keys that are long dead, and objects that no row owns any more. One
 * process at a time, to spare the others the work: every step may be done twice, and what one died over the next one does.
 */
import type { ObjectStore } from '@fuse/object-store';
import type { Clock, Logger } from '@fuse/runtime';
import { deleteDeadApiKeys, deleteExpiredSessions } from '../api-keys/api-key-store.ts';
import type { Db } from '../db/db.ts';
import { deleteExpiredFiles } from '../files/file-store.ts';
import { deleteExpiredKeys } from '../idempotency/idempotency-store.ts';
import type { LeaderLease } from '../reconciling/leader-lease.ts';
import { LeasedLoop } from '../reconciling/leased-loop.ts';
import { runPrefix } from './object-keys.ts';
import { sweepOrphans } from './orphan-sweep.ts';
import { deleteRun, expiredRuns } from './run-retention.ts';

export interface CollectorOptions {
  db: Db;
  objectStore: ObjectStore;
  log: Logger;
  clock: Clock;
  lease: LeaderLease;
  intervalMs: number;
  sweepEveryMs: number;
}

const BATCH = 50;

export class Collector implements AsyncDisposable {
  readonly #options: CollectorOptions;
  readonly #loop: LeasedLoop;
  #sweptAt: number;

  constructor(options: CollectorOptions) {
    this.#options = options;
    this.#loop = new LeasedLoop({ ...options, what: 'collecting' }, (signal) => this.collect(signal));
    // The first sweep comes after a while: right after a start nothing can be that old.
    this.#sweptAt = options.clock.monotonic();
  }

  start(): void {
    this.#loop.start();
  }

  /** One round. */
  async collect(signal: AbortSignal): Promise<void> {
    const { db, objectStore, log, clock, sweepEveryMs } = this.#options;
    let runs = 0;
    for (let ids = await expiredRuns(db.query, BATCH); ids.length > 0; ids = await expiredRuns(db.query, BATCH)) {
      for (const id of ids) {
        signal.throwIfAborted();
        // Objects first: a row without them can be found again, they without a row cannot.
        await objectStore.deletePrefix(runPrefix(id));
        await db.transaction((tx) => deleteRun(tx, id));
        runs += 1;
      }
    }
    let files = 0;
    for (
      let keys = await deleteExpiredFiles(db.query, BATCH);
      keys.length > 0;
      keys = await deleteExpiredFiles(db.query, BATCH)
    ) {
      signal.throwIfAborted();
      await Promise.all(keys.map((key) => objectStore.delete(key)));
      files += keys.length;
    }
    const idempotencyKeys = await deleteExpiredKeys(db.query);
    const sessions = await deleteExpiredSessions(db.query);
    const apiKeys = await deleteDeadApiKeys(db.query);
    if (runs + files + idempotencyKeys + sessions + apiKeys > 0) {
      const collected = { runs, files, idempotency_keys: idempotencyKeys, sessions, api_keys: apiKeys };
      log.info(collected, 'what had expired was collected');
    }
    if (clock.monotonic() - this.#sweptAt < sweepEveryMs) return;
    this.#sweptAt = clock.monotonic();
    const swept = await sweepOrphans({ db, objectStore, nowMs: clock.now() }, signal);
    if (swept > 0) log.info({ objects: swept }, 'objects that nothing owned were swept');
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#loop[Symbol.asyncDispose]();
  }
}

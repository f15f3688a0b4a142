/** Writes to the ledger every so often what is used meanwhile, so that little is on the way there. */
import type { Logger } from '@fuse/runtime';
import type { Db } from '../db/db.ts';
import type { LeaderLease } from '../reconciling/leader-lease.ts';
import { LeasedLoop } from '../reconciling/leased-loop.ts';
import { databaseTime, meterRunning, meterStored } from './metering.ts';

export interface MeterOptions {
  db: Db;
  log: Logger;
  lease: LeaderLease;
  intervalMs: number;
}

export const METER_EVERY_MS = 60_000;
const BATCH = 500;

export class Meter implements AsyncDisposable {
  readonly #db: Db;
  readonly #loop: LeasedLoop;

  constructor(options: MeterOptions) {
    this.#db = options.db;
    this.#loop = new LeasedLoop({ ...options, what: 'metering' }, (signal) => this.meter(signal));
  }

  start(): void {
    this.#loop.start();
  }

  /** One round. Two at once, or one that dies midway, count nothing twice. */
  async meter(signal: AbortSignal): Promise<void> {
    const before = await databaseTime(this.#db.query);
    const batch = () => this.#db.transaction((tx) => meterRunning(tx, { before, limit: BATCH }));
    while ((await batch()) === BATCH) signal.throwIfAborted();
    await this.#db.transaction(meterStored);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#loop[Symbol.asyncDispose]();
  }
}

/**
 * What is in the database in clear, or sealed with the old key, is sealed with the current one: at start and every so often, since a replica that still has the former
 * configuration may write more of it. One process at a time; each row is a compare-and-set of its own, so that it may stop anywhere and begin again, and changes of others
 * win. Once a round finds nothing, nobody needs the old key any more.
 */
import type { Logger } from '@fuse/runtime';
import { sql } from 'kysely';
import { type Db, jsonb } from '../db/db.ts';
import type { LeaderLease } from '../reconciling/leader-lease.ts';
import { LeasedLoop } from '../reconciling/leased-loop.ts';
import { resealClear } from './reseal-clear.ts';
import { type ResealedColumn, resealedColumns } from './resealed-columns.ts';
import type { Sealer } from './sealer.ts';

const BATCH = 200;

export interface ResealerOptions {
  db: Db;
  sealer: Sealer;
  log: Logger;
  lease: LeaderLease;
  intervalMs: number;
}

interface Pending {
  key: string;
  value: unknown;
}

export class Resealer implements AsyncDisposable {
  readonly #options: ResealerOptions;
  readonly #loop: LeasedLoop;

  constructor(options: ResealerOptions) {
    this.#options = options;
    this.#loop = new LeasedLoop({ ...options, what: 'sealing anew' }, (signal) => this.round(signal));
  }

  start(): void {
    this.#loop.start();
  }

  /** Over all there is. */
  async round(signal: AbortSignal): Promise<void> {
    const { db, sealer, log } = this.#options;
    let sealed = await resealClear(db, sealer);
    let failed = 0;
    for (const column of resealedColumns) {
      let after = '';
      for (;;) {
        signal.throwIfAborted();
        const pending = await this.#pendingAfter(column, after);
        for (const row of pending) {
          after = row.key;
          if (await this.#reseal(column, row)) sealed += 1;
          else failed += 1;
        }
        if (pending.length < BATCH) break;
        await this.#options.lease.hold(); // renewed; were it lost, two would do the same
      }
    }
    if (failed > 0) log.error({ sealed, failed }, 'some secrets cannot be opened: they stay as they are');
    else if (sealed > 0) log.info({ sealed }, 'secrets are sealed with the current key');
  }

  async #pendingAfter({ table, column, key, isPending }: ResealedColumn, after: string): Promise<Pending[]> {
    const { db, sealer } = this.#options;
    const { rows } = await sql<Pending>`
      select ${key} as key, ${sql.ref(column)} as value from ${sql.table(table)}
      where ${isPending(sealer.prefix)} and ${key} > ${after} order by 1 limit ${BATCH}`.execute(db.query);
    return rows;
  }

  /** True also when somebody else changed it meanwhile. */
  async #reseal({ table, column, key, reseal, isJson }: ResealedColumn, row: Pending): Promise<boolean> {
    const { db, sealer, log } = this.#options;
    try {
      const fresh = reseal(sealer, row.value, row.key);
      const [before, after] = isJson ? [jsonb(row.value), jsonb(fresh)] : [row.value, fresh];
      await sql`
        update ${sql.table(table)} set ${sql.ref(column)} = ${after}
        where ${key} = ${row.key} and ${sql.ref(column)} = ${before}`.execute(db.query);
      return true;
    } catch (error) {
      log.error({ err: error, table, column, row: row.key }, 'a secret is not sealed anew');
      return false;
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#loop[Symbol.asyncDispose]();
  }
}

/**
 * The database port: one type over PostgreSQL and embedded PGlite. `Tx` is a `Queryable`, so a store's function takes
 * `Queryable` when it may run anywhere and `Tx` when it must be part of a transaction.
 */

import { sleep } from '@fuse/runtime';
import { Kysely, PostgresDialect, type PostgresPool, type RawBuilder, sql, type Transaction } from 'kysely';
import { isLostConnection, isRetryableTransactionError } from './database-errors.ts';
import type { Database } from './schema.ts';

export type Queryable = Kysely<Database>;
export type Tx = Transaction<Database>;

/** Channels carry hints only: what they announce is always in a row already. */
export const channels = {
  /** Payload `<subject kind>:<subject id>`: a new row in `events`. */
  events: 'fuse_events',
  /** A reservation was given back, or a host came or grew: whoever waits for room looks again. */
  capacity: 'fuse_capacity',
  /** A run was queued, or is to be cancelled. */
  runs: 'fuse_runs',
  /** A key, a session, an environment's credential or a tenant is good no more: look them up again. */
  credentials: 'fuse_credentials',
} as const;
export type Channel = (typeof channels)[keyof typeof channels];

/** `undefined` means: the connection was lost for a while, anything may have been missed; look at the rows. */
export type Wake = (payload: string | undefined) => void;

/** What an engine gives; `Db` adds the rest. */
export interface DatabaseEngine extends AsyncDisposable {
  readonly kind: 'postgres' | 'pglite';
  readonly pool: PostgresPool;
  /** Resolves once listening. `wake` must not throw and is never called after the disposal. */
  listen(channel: Channel, wake: Wake): Promise<AsyncDisposable>;
}

const MAX_TRANSACTION_TRIES = 8;
const MAX_LOST_CONNECTIONS = 3;
const LOST_CONNECTION_PAUSE_MS = 50;

export class Db implements AsyncDisposable {
  /** Queries outside any transaction. Never use it inside `transaction`'s work: on PGlite that waits for itself. */
  readonly query: Queryable;
  readonly #engine: DatabaseEngine;

  constructor(engine: DatabaseEngine) {
    this.#engine = engine;
    this.query = new Kysely<Database>({ dialect: new PostgresDialect({ pool: engine.pool }) });
  }

  get kind(): 'postgres' | 'pglite' {
    return this.#engine.kind;
  }

  /**
   * Commits when `work` resolves, rolls back when it rejects. `work` is run again after a serialisation failure, a deadlock, or a
   * connection lost before the commit, so it must have no effect outside the transaction.
   */
  async transaction<T>(work: (tx: Tx) => Promise<T>, isolation?: 'repeatable read' | 'serializable'): Promise<T> {
    for (let attempt = 1; ; attempt += 1) {
      let committing = false;
      try {
        const builder = this.query.transaction();
        return await (isolation === undefined ? builder : builder.setIsolationLevel(isolation)).execute(async (tx) => {
          const result = await work(tx);
          committing = true;
          return result;
        });
      } catch (error) {
        const lost = !committing && isLostConnection(error) && attempt <= MAX_LOST_CONNECTIONS;
        if (lost) await sleep(LOST_CONNECTION_PAUSE_MS);
        else if (attempt >= MAX_TRANSACTION_TRIES || !isRetryableTransactionError(error)) throw error;
      }
    }
  }

  listen(channel: Channel, wake: Wake): Promise<AsyncDisposable> {
    return this.#engine.listen(channel, wake);
  }

  async ping(): Promise<void> {
    await sql`select 1`.execute(this.query);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.query.destroy();
    await this.#engine[Symbol.asyncDispose]();
  }
}

/** Delivered to listeners when the transaction commits, once per distinct payload. */
export async function notify(tx: Tx, channel: Channel, payload = ''): Promise<void> {
  await sql`select pg_notify(${channel}, ${payload})`.execute(tx);
}

/** A jsonb value, the same on both engines. */
export const jsonb = <T>(value: T): RawBuilder<T> => sql<T>`${JSON.stringify(value)}::jsonb`;

/** The database's clock; the same value throughout one transaction. */
export const now = sql<Date>`now()`;
export const inMs = (ms: number): RawBuilder<Date> => sql<Date>`now() + ${ms}::float8 * interval '1 millisecond'`;

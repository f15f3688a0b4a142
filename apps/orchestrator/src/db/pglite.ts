/**
 * Embedded PostgreSQL. It has a single connection: a transaction holds it, everybody else queues. Notifications come from
 * that same connection when a transaction has committed.
 */
import { PGlite } from '@electric-sql/pglite';
import type { PostgresPoolClient } from 'kysely';
import { fromDatabaseError } from './database-errors.ts';
import type { DatabaseEngine } from './db.ts';

const OID = { int8: 20, numeric: 1700 };

/** `directory` is kept and reused; none: in memory. First boot takes seconds. */
export async function openPglite(directory?: string): Promise<DatabaseEngine> {
  const options = { parsers: { [OID.int8]: Number, [OID.numeric]: Number } };
  const pglite = await (directory === undefined ? PGlite.create(options) : PGlite.create(directory, options));
  const turns = new Turns();
  return {
    kind: 'pglite',
    pool: { connect: async () => new Connection(pglite, await turns.take()), end: async () => {} },
    listen: async (channel, wake) => {
      let live = true;
      const done = await turns.take();
      const unlisten = await pglite
        .listen(channel, (payload) => {
          if (live) wake(payload);
        })
        .finally(done);
      return {
        [Symbol.asyncDispose]: async () => {
          live = false;
          const unlistened = await turns.take();
          await unlisten()
            .catch(() => {}) // closed already
            .finally(unlistened);
        },
      };
    },
    [Symbol.asyncDispose]: () => (pglite.closed ? Promise.resolve() : pglite.close()),
  };
}

class Connection {
  readonly #pglite: PGlite;
  readonly release: () => void;

  constructor(pglite: PGlite, release: () => void) {
    this.#pglite = pglite;
    this.release = release;
  }

  readonly query = (async (text: string, values: readonly unknown[] = []) => {
    try {
      // As `pg` does: without parameters the simple protocol, which takes several statements.
      const result =
        values.length === 0
          ? (await this.#pglite.exec(text)).at(-1)
          : await this.#pglite.query<Record<string, unknown>>(text, [...values]);
      const rows = result?.rows ?? [];
      const changed = result?.affectedRows ?? 0;
      return {
        command: /^\s*(\w+)/.exec(text)?.[1]?.toUpperCase() ?? '',
        rowCount: Math.max(changed, rows.length),
        rows,
      };
    } catch (error) {
      throw fromDatabaseError(error);
    }
  }) as PostgresPoolClient['query']; // no cursors are used: always text and values
}

/** First come, first served. */
class Turns {
  #last: Promise<void> = Promise.resolve();

  async take(): Promise<() => void> {
    const before = this.#last;
    let done: () => void = () => {};
    this.#last = new Promise((resolve) => {
      done = resolve;
    });
    await before;
    return done;
  }
}

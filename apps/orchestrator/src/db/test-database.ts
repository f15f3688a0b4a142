/** For tests: each engine with the schema in place. Every database test runs on both. */
import { createLogger, type Logger } from '@fuse/runtime';
import { sharedPostgres, type TestDatabase } from '@fuse/testing';
import { Db } from './db.ts';
import { migrate } from './migrate.ts';
import type { DatabaseLocation } from './open.ts';
import { openPglite } from './pglite.ts';
import { openPostgres, type PostgresOptions } from './postgres.ts';

export const engines = ['postgres', 'pglite'] as const;
export type Engine = (typeof engines)[number];

export interface TestDb extends AsyncDisposable {
  db: Db;
  /** Another process's view of the same database; PGlite has one connection, so there it is the same object. */
  another(options?: Partial<PostgresOptions>): Db;
}

/** An empty database of the caller's own that `openDatabase` takes. */
export async function testLocation(engine: Engine): Promise<AsyncDisposable & { location: DatabaseLocation }> {
  if (engine === 'pglite') return { location: 'memory', [Symbol.asyncDispose]: async () => {} };
  const database = await migratedDatabase();
  return { location: { url: database.url }, [Symbol.asyncDispose]: () => database[Symbol.asyncDispose]() };
}

async function migratedDatabase(): Promise<TestDatabase> {
  const server = await sharedPostgres();
  return server.createDatabase(async (url) => {
    await using db = new Db(openPostgres({ url, log: quiet }));
    await migrate(db);
  }, 'orchestrator');
}

export const quiet: Logger = createLogger({ name: 'test', level: process.env.FUSE_TEST_LOG ?? 'silent' });

export async function openTestDb(engine: Engine): Promise<TestDb> {
  if (engine === 'pglite') {
    const db = new Db(await openPglite());
    await migrate(db);
    return { db, another: () => db, [Symbol.asyncDispose]: () => db[Symbol.asyncDispose]() };
  }
  const database = await migratedDatabase();
  const opened: Db[] = [];
  const another = (options: Partial<PostgresOptions> = {}) => {
    const db = new Db(openPostgres({ url: database.url, log: quiet, ...options }));
    opened.push(db);
    return db;
  };
  return {
    db: another(),
    another,
    [Symbol.asyncDispose]: async () => {
      await Promise.all(opened.map((db) => db[Symbol.asyncDispose]()));
      await database[Symbol.asyncDispose]();
    },
  };
}

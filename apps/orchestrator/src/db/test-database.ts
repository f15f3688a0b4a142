/** For tests: each engine with the schema in place. Every database test runs on both. */
import { DEFAULT_TENANT } from '@fuse/contract';
import { createLogger, type Logger } from '@fuse/runtime';
import { sharedPostgres, type TestDatabase } from '@fuse/testing';
import { sql } from 'kysely';
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

let pglite: Promise<Db> | undefined;

/** One for the whole test file, since its boot takes seconds; for each caller as it was when it was new. */
async function emptyPglite(): Promise<Db> {
  pglite ??= openPglite().then(async (engine) => {
    const db = new Db(engine);
    await migrate(db);
    return db;
  });
  const db = await pglite;
  const tables = await sql<{ name: string }>`
    select tablename as name from pg_tables where schemaname = 'public' and tablename <> 'schema_migrations'`.execute(
    db.query,
  );
  await sql.raw(`truncate ${tables.rows.map(({ name }) => name).join(', ')}`).execute(db.query);
  await sql`insert into tenants (id) values (${DEFAULT_TENANT})`.execute(db.query);
  return db;
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
    const db = await emptyPglite();
    return { db, another: () => db, [Symbol.asyncDispose]: async () => {} };
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

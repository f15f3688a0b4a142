/** Numbered, forward-only SQL files; one transaction under an advisory lock, so that any number of replicas may start at once. */
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { sql } from 'kysely';
import type { Db } from './db.ts';

/** The same folder from src/db and from dist/db: the compiler does not copy .sql files. */
const MIGRATIONS = new URL('../../src/db/migrations/', import.meta.url);
const ADVISORY_LOCK = 4_711_200_001;

interface Migration {
  version: number;
  name: string;
  text: string;
  sha256: string;
}

async function readMigrations(folder: URL): Promise<Migration[]> {
  const names = (await readdir(folder)).filter((name) => /^\d{4}_.+\.sql$/.test(name)).sort();
  return Promise.all(
    names.map(async (name) => {
      const text = await readFile(new URL(name, folder), 'utf8');
      return { version: Number(name.slice(0, 4)), name, text, sha256: createHash('sha256').update(text).digest('hex') };
    }),
  );
}

/** Returns the names that were applied now. */
export async function migrate(db: Db, folder: URL = MIGRATIONS): Promise<string[]> {
  const migrations = await readMigrations(folder);
  return db.transaction(async (tx) => {
    await sql`select pg_advisory_xact_lock(${ADVISORY_LOCK}::bigint)`.execute(tx);
    await sql`create table if not exists schema_migrations (
      version int primary key, name text not null, sha256 text not null, applied_at timestamptz not null default now()
    )`.execute(tx);
    const applied = await sql<{ version: number; name: string; sha256: string }>`
      select version, name, sha256 from schema_migrations order by version`.execute(tx);
    const known = new Map(migrations.map((migration) => [migration.version, migration]));
    for (const row of applied.rows) {
      const file = known.get(row.version);
      if (file === undefined)
        throw new Error(`the database has migration ${row.name}, which this version does not know: it is newer`);
      if (file.sha256 !== row.sha256)
        throw new Error(`migration ${row.name} was changed after it was applied to this database`);
      known.delete(row.version);
    }
    const pending = [...known.values()].sort((a, b) => a.version - b.version);
    for (const { version, name, text, sha256 } of pending) {
      await sql.raw(text).execute(tx);
      await sql`insert into schema_migrations (version, name, sha256) values (${version}, ${name}, ${sha256})`.execute(
        tx,
      );
    }
    return pending.map((migration) => migration.name);
  });
}

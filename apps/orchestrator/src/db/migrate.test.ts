import { copyFile, readdir, writeFile } from 'node:fs/promises';
import { pathToFileURL } from 'node:url';
import { sharedPostgres, temporaryDirectory } from '@fuse/testing';
import { sql } from 'kysely';
import { describe, expect, it } from 'vitest';
import { Db } from './db.ts';
import { migrate } from './migrate.ts';
import { openDatabase } from './open.ts';
import { openPostgres } from './postgres.ts';
import { quiet } from './test-database.ts';

const ours = new URL('./migrations/', import.meta.url);

async function copyOfMigrations() {
  const directory = await temporaryDirectory();
  for (const name of await readdir(ours)) await copyFile(new URL(name, ours), `${directory.path}/${name}`);
  return { directory, folder: pathToFileURL(`${directory.path}/`) };
}

describe('migrations', () => {
  it('are applied once by ten replicas that start at once', async () => {
    await using database = await (await sharedPostgres()).createDatabase();
    const dbs = Array.from({ length: 10 }, () => new Db(openPostgres({ url: database.url, log: quiet })));
    const applied = await Promise.all(dbs.map((db) => migrate(db)));
    expect(applied.flat().length).toBe((await readdir(ours)).length);
    await Promise.all(dbs.map((db) => db[Symbol.asyncDispose]()));
  });

  it('leave nothing when one fails, refuse a changed one and one from the future', async () => {
    await using database = await (await sharedPostgres()).createDatabase();
    await using db = new Db(openPostgres({ url: database.url, log: quiet }));
    const { directory, folder } = await copyOfMigrations();
    await using _directory = directory;
    await writeFile(`${directory.path}/0090_broken.sql`, 'create table half (id int); select nonsense;');
    await expect(migrate(db, folder)).rejects.toThrow(/nonsense/);
    const { rows } = await sql`select 1 from pg_tables where tablename in ('half', 'environments')`.execute(db.query);
    expect(rows).toEqual([]);

    await writeFile(`${directory.path}/0090_broken.sql`, 'create table half (id int);');
    expect(await migrate(db, folder)).toContain('0090_broken.sql');
    await expect(migrate(db)).rejects.toThrow(/newer/);
    await writeFile(`${directory.path}/0090_broken.sql`, 'create table whole (id int);');
    await expect(migrate(db, folder)).rejects.toThrow(/changed after it was applied/);
  });

  it('are kept in PGlite’s directory', async () => {
    await using directory = await temporaryDirectory();
    const path = `${directory.path}/postgres`;
    {
      await using db = await openDatabase({ directory: path }, quiet);
      await sql`insert into leases (name, owner, fence, until) values ('x', 'me', 1, now())`.execute(db.query);
    }
    await using db = await openDatabase({ directory: path }, quiet);
    expect(await db.query.selectFrom('leases').select('name').execute()).toEqual([{ name: 'x' }]);
  }, 60_000);
});

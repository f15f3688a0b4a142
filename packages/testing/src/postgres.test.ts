import { access } from 'node:fs/promises';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startPostgres, type TestPostgres } from './postgres.ts';

const exists = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  );

async function query(url: string, text: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query(text)).rows;
  } finally {
    await client.end();
  }
}

describe('a PostgreSQL of the tests own', () => {
  let postgres: TestPostgres;
  beforeAll(async () => {
    postgres = await startPostgres();
  }, 60_000);
  afterAll(() => postgres[Symbol.asyncDispose]());

  it('migrates a template once and gives every caller its own clone', async () => {
    let migrations = 0;
    const migrate = async (url: string) => {
      migrations += 1;
      await query(url, 'create table things (id int)');
    };
    const databases = await Promise.all([1, 2, 3, 4].map(() => postgres.createDatabase(migrate)));
    const [first, second] = databases as [(typeof databases)[number], (typeof databases)[number]]; // four were made
    await query(first.url, 'insert into things values (1)');
    expect(await query(first.url, 'select id from things')).toEqual([{ id: 1 }]);
    expect(await query(second.url, 'select id from things')).toEqual([]);
    expect(migrations).toBe(1);
    await Promise.all(databases.map((database) => database[Symbol.asyncDispose]()));
    expect(await query(postgres.adminUrl, "select datname from pg_database where datname like 'test_%'")).toEqual([]);
  });

  it('does not keep a template whose migration failed', async () => {
    let broken = true;
    const migrate = async (url: string) => {
      await query(url, 'create table halves (id int)');
      if (broken) throw new Error('migration broke');
    };
    await expect(postgres.createDatabase(migrate)).rejects.toThrow('migration broke');
    broken = false;
    const database = await postgres.createDatabase(migrate);
    expect(await query(database.url, 'select * from halves')).toEqual([]);
    await database[Symbol.asyncDispose]();
  });

  it('drops a database that still has connections', async () => {
    const database = await postgres.createDatabase();
    const client = new pg.Client({ connectionString: database.url });
    client.on('error', () => {}); // the server cuts it
    await client.connect();
    await database[Symbol.asyncDispose]();
    await client.end();
  });

  it('stops and removes its directory when disposed', async () => {
    const other = await startPostgres();
    const directory = new URL(other.adminUrl).searchParams.get('host') ?? '';
    expect(await exists(directory)).toBe(true);
    await other[Symbol.asyncDispose]();
    expect(await exists(directory)).toBe(false);
  }, 60_000);
});

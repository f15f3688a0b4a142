import { AppError } from '@fuse/contract';
import { sql } from 'kysely';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { channels, type Db, inMs, jsonb, notify } from './db.ts';
import { engines, openTestDb, type TestDb } from './test-database.ts';

const until = async (what: string, holds: () => boolean) => {
  const deadline = Date.now() + 10_000;
  while (!holds()) {
    if (Date.now() > deadline) throw new Error(`never happened: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
};

const insertLease = (db: Db, name: string) =>
  db.transaction((tx) =>
    tx
      .insertInto('leases')
      .values({ name, owner: 'me', fence: 1, until: inMs(1_000) })
      .execute(),
  );
const leaseNames = async (db: Db) =>
  (await db.query.selectFrom('leases').select('name').orderBy('name').execute()).map((row) => row.name);

describe.each(engines)('the database on %s', (engine) => {
  let test: TestDb;
  let db: Db;
  beforeAll(async () => {
    test = await openTestDb(engine);
    db = test.db;
  }, 60_000);
  afterAll(() => test[Symbol.asyncDispose]());

  it('reads bigint and numeric as numbers, timestamps as Date, jsonb parsed, bytea as bytes', async () => {
    const { rows } = await sql<Record<string, unknown>>`select
      ${2 ** 40}::bigint as big, sum(x) as total, now() as at, ${jsonb([{ a: 1 }])} as list, ${Buffer.from([0, 255])}::bytea as bytes
      from (values (1::bigint), (2)) as t (x)`.execute(db.query);
    expect(rows[0]).toMatchObject({ big: 2 ** 40, total: 3, list: [{ a: 1 }] });
    expect(rows[0]?.at).toBeInstanceOf(Date);
    expect([...((rows[0]?.bytes ?? []) as Uint8Array)]).toEqual([0, 255]);
  });

  it('keeps a transaction whole: all of it on success, nothing after an error', async () => {
    await insertLease(db, 'kept');
    await expect(
      db.transaction(async (tx) => {
        await tx
          .insertInto('leases')
          .values({ name: 'dropped', owner: 'me', fence: 1, until: inMs(0) })
          .execute();
        throw new Error('no');
      }),
    ).rejects.toThrow('no');
    expect(await leaseNames(db)).toEqual(['kept']);
  });

  it('queues transactions that come at once', async () => {
    await sql`create table counters (n int)`.execute(db.query);
    await sql`insert into counters values (0)`.execute(db.query);
    await Promise.all(
      Array.from({ length: 30 }, () =>
        db.transaction(async (tx) => {
          const { rows } = await sql<{ n: number }>`select n from counters for update`.execute(tx);
          await sql`update counters set n = ${(rows[0]?.n ?? 0) + 1}`.execute(tx);
        }),
      ),
    );
    expect((await sql<{ n: number }>`select n from counters`.execute(db.query)).rows).toEqual([{ n: 30 }]);
  });

  it('delivers a notification when its transaction commits, and none of one that did not', async () => {
    const heard: (string | undefined)[] = [];
    await using _subscription = await test.another().listen(channels.events, (payload) => heard.push(payload));
    await db
      .transaction(async (tx) => {
        await notify(tx, channels.events, 'lost');
        throw new Error('rolled back');
      })
      .catch(() => {});
    await db.transaction(async (tx) => {
      await notify(tx, channels.events, 'run:1');
      await notify(tx, channels.capacity, 'elsewhere');
      expect(heard).toEqual([]);
    });
    await until('the notification', () => heard.length > 0);
    expect(heard).toEqual(['run:1']);
  });

  it('wakes nobody after the subscription was disposed', async () => {
    const heard: unknown[] = [];
    const subscription = await db.listen(channels.runs, (payload) => heard.push(payload));
    await subscription[Symbol.asyncDispose]();
    const again: unknown[] = [];
    await using _other = await db.listen(channels.runs, (payload) => again.push(payload));
    await db.transaction((tx) => notify(tx, channels.runs, 'x'));
    await until('the other one hears', () => again.length > 0);
    expect(heard).toEqual([]);
  });

  it('takes a NUL in text as the caller’s mistake', async () => {
    const error = await insertLease(db, 'a\0b').catch((error: unknown) => error);
    expect(error).toBeInstanceOf(AppError);
    expect(error).toMatchObject({ code: 'invalid_argument' });
    const inJson = await sql`select ${jsonb({ a: 'x\0' })}`.execute(db.query).catch((error: unknown) => error);
    expect(inJson).toMatchObject({ code: 'invalid_argument' });
  });
});

describe('the database on PostgreSQL alone', () => {
  let test: TestDb;
  let db: Db;
  beforeAll(async () => {
    test = await openTestDb('postgres');
    db = test.db;
  }, 60_000);
  afterAll(() => test[Symbol.asyncDispose]());

  it('runs a transaction again after a serialisation failure', async () => {
    await sql`create table balances (id int primary key, n int)`.execute(db.query);
    await sql`insert into balances values (1, 0), (2, 0)`.execute(db.query);
    let runs = 0;
    await Promise.all(
      Array.from({ length: 8 }, () =>
        db.transaction(async (tx) => {
          runs += 1;
          const { rows } = await sql<{ n: number }>`select sum(n) as n from balances`.execute(tx);
          await sql`update balances set n = ${(rows[0]?.n ?? 0) + 1} where id = 1`.execute(tx);
        }, 'serializable'),
      ),
    );
    expect((await sql<{ n: number }>`select n from balances where id = 1`.execute(db.query)).rows).toEqual([{ n: 8 }]);
    expect(runs).toBeGreaterThan(8);
  });

  const killBackends = (application: string) =>
    sql`select pg_terminate_backend(pid) from pg_stat_activity where application_name = ${application}`.execute(
      db.query,
    );

  it('survives the loss of every connection, also of one inside a transaction, and goes on', async () => {
    const other = test.another({ applicationName: 'doomed' });
    await other.ping();
    const cut = await other
      .transaction(async (tx) => {
        await sql`select 1`.execute(tx);
        await killBackends('doomed');
        await sql`select 1`.execute(tx);
      })
      .catch((error: unknown) => error);
    expect(cut).toMatchObject({ code: 'unavailable' });
    await killBackends('doomed');
    expect(await other.transaction((tx) => sql`select 1`.execute(tx))).toMatchObject({ rows: [{ '?column?': 1 }] });
    await other.ping();
  });

  it('listens again after its connection was lost, and tells its subscribers to look', async () => {
    const other = test.another({ applicationName: 'ears' });
    const heard: (string | undefined)[] = [];
    await using _subscription = await other.listen(channels.events, (payload) => heard.push(payload));
    await killBackends('ears-listen');
    await until('woken after the loss', () => heard.includes(undefined));
    await db.transaction((tx) => notify(tx, channels.events, 'after'));
    await until('hears again', () => heard.includes('after'));
  });

  it('cuts a statement that takes too long', async () => {
    const other = test.another({ statementTimeoutMs: 100 });
    const error = await sql`select pg_sleep(5)`.execute(other.query).catch((error: unknown) => error);
    expect(error).toMatchObject({ code: 'unavailable' });
  });

  it('reports a server that cannot be reached as unavailable', async () => {
    const error = await test
      .another({ url: 'postgresql://nobody@127.0.0.1:1/none' })
      .ping()
      .catch((error: unknown) => error);
    expect(error).toMatchObject({ code: 'unavailable', retryAfterSeconds: 1 });
  });
});

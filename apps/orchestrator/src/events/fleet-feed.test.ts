import type { KyselyPlugin } from 'kysely';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Db, Tx } from '../db/db.ts';
import { engines, openTestDb, quiet, type TestDb } from '../db/test-database.ts';
import { formatPosition, isUnbroken, lastInOrder, type Position, parsePosition, START } from './event-order.ts';
import { EventHub, type NewEvent, recordEvents } from './events.ts';
import { FleetFeed } from './fleet-feed.ts';

describe.each(engines)('the feed of all events on %s', (engine) => {
  let test: TestDb;
  let db: Db;
  let hub: EventHub;
  let queries = 0;
  let feed: FleetFeed;
  beforeAll(async () => {
    test = await openTestDb(engine);
    db = test.db;
    const own = test.another();
    hub = await EventHub.open(own);
    const counting: KyselyPlugin = {
      transformQuery: ({ node }) => {
        queries += 1;
        return node;
      },
      transformResult: async ({ result }) => result,
    };
    const counted = own.query.withPlugin(counting);
    feed = new FleetFeed(Object.create(own, { query: { value: counted } }), hub, quiet);
  }, 60_000);
  afterAll(async () => {
    await hub[Symbol.asyncDispose]();
    await test[Symbol.asyncDispose]();
  });

  const event = (number: number, tenantId = 'one'): NewEvent => ({
    subjectKind: 'environment',
    subjectId: `env-${number % 7}`,
    tenantId,
    kind: 'state',
    data: { number },
  });
  const write = (tx: Tx, number: number, tenantId?: string) => recordEvents(tx, [event(number, tenantId)]);
  const record = (number: number, tenantId?: string) => db.transaction((tx) => write(tx, number, tenantId));

  async function follow(from: Position, count: number, options: { tenantId?: string } = {}) {
    const stop = new AbortController();
    const seen: { number: unknown; position: Position }[] = [];
    for await (const { position, row } of feed.follow(from, options.tenantId, stop.signal)) {
      seen.push({ number: row.data.number, position });
      if (seen.length === count) break;
    }
    return seen;
  }
  const numbers = (seen: { number: unknown }[]) => seen.map(({ number }) => number);

  it('reaches any number of followers in one order, from any point, each event once, by a few queries', async () => {
    for (let number = 0; number < 10; number += 1) await record(number, number % 2 === 0 ? 'one' : 'two');
    const [, , , third] = await follow(START, 10);
    const here = await lastInOrder(db.query);
    const many = Array.from({ length: 300 }, () => follow(here, 20));
    const others = [follow(third?.position ?? START, 26), follow(here, 10, { tenantId: 'two' })];
    await expect.poll(() => queries).toBeGreaterThan(0);
    await new Promise((resolve) => setTimeout(resolve, 100)); // all of them wait
    queries = 0;
    for (let number = 10; number < 30; number += 1) await record(number, number % 2 === 0 ? 'one' : 'two');
    const all = Array.from({ length: 20 }, (_, at) => at + 10);
    for (const seen of await Promise.all(many)) expect(numbers(seen)).toEqual(all);
    expect(queries).toBeLessThan(150); // 6,000 deliveries
    const [late, ofTwo] = await Promise.all(others);
    expect(numbers(late ?? [])).toEqual(Array.from({ length: 26 }, (_, at) => at + 4));
    expect(numbers(ofTwo ?? [])).toEqual(all.filter((number) => number % 2 === 1));
  });

  it('leaves nothing out for one that falls behind what is kept in memory', async () => {
    const here = await lastInOrder(db.query);
    const total = 6_000;
    const all = Array.from({ length: total }, (_, at) => at);
    const keepsUp = follow(here, total);
    const stalls = (async () => {
      const stop = new AbortController();
      const seen: unknown[] = [];
      for await (const { row } of feed.follow(here, undefined, stop.signal)) {
        if (seen.length === 0) await keepsUp; // everything has come by then
        seen.push(row.data.number);
        if (seen.length === total) break;
      }
      return seen;
    })();
    for (let number = 0; number < total; number += 500)
      await db.transaction((tx) =>
        recordEvents(
          tx,
          all.slice(number, number + 500).map((at) => event(at)),
        ),
      );
    expect(numbers(await keepsUp)).toEqual(all);
    expect(await stalls).toEqual(all);
  });

  // It takes several connections.
  if (engine === 'postgres')
    it('waits for what was begun earlier and commits later', async () => {
      const here = await lastInOrder(db.query);
      const seen = follow(here, 3);
      let goOn = () => {};
      const held = new Promise<void>((resolve) => {
        goOn = resolve;
      });
      let hasWritten = () => {};
      const written = new Promise<void>((resolve) => {
        hasWritten = resolve;
      });
      const late = test.another().transaction(async (tx) => {
        await write(tx, 1);
        hasWritten();
        await held;
      });
      await written;
      await record(2);
      await record(3);
      await new Promise((resolve) => setTimeout(resolve, 50));
      expect(await lastInOrder(db.query)).toEqual(here);
      goOn();
      await late;
      expect(numbers(await seen)).toEqual([1, 2, 3]);
    });

  it('knows whether it can go on from a position', async () => {
    const last = await lastInOrder(db.query);
    expect(parsePosition(formatPosition(last))).toEqual(last);
    for (const text of ['', 'zz', 'f'.repeat(32), '0'.repeat(31)]) expect(parsePosition(text)).toBeUndefined();
    expect(await isUnbroken(db.query, last, 60_000)).toBe(true);
    expect(await isUnbroken(db.query, START, 60_000)).toBe(true);
    expect(await isUnbroken(db.query, { ...last, xid: last.xid + 1n }, 60_000)).toBe(false);
    expect(await isUnbroken(db.query, { ...last, id: last.id + 1n }, 60_000)).toBe(false);
    expect(await isUnbroken(db.query, last, 0)).toBe(false); // so old that later ones may be gone
  });
});

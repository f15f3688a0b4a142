import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Db } from '../db/db.ts';
import type { EventRow } from '../db/schema.ts';
import { engines, openTestDb, type TestDb } from '../db/test-database.ts';
import { EventHub, followEvents, recordEvent } from './events.ts';

describe.each(engines)('events on %s', (engine) => {
  let test: TestDb;
  let db: Db;
  let hub: EventHub;
  beforeAll(async () => {
    test = await openTestDb(engine);
    db = test.db;
    hub = await EventHub.open(test.another());
  }, 60_000);
  afterAll(async () => {
    await hub[Symbol.asyncDispose]();
    await test[Symbol.asyncDispose]();
  });

  const record = (subjectId: string, number: number) =>
    db.transaction((tx) => recordEvent(tx, { subjectKind: 'environment', subjectId, kind: 'state', data: { number } }));
  const numberOf = (row: EventRow) => row.data.number;

  it('are followed without gap or repeat, from any point, while more come', async () => {
    const ids: number[] = [];
    for (let number = 0; number < 5; number += 1) ids.push(await record('followed', number));
    const stop = new AbortController();
    const follow = async (afterId: number, count: number) => {
      const seen: unknown[] = [];
      for await (const row of followEvents(hub, db, { kind: 'environment', id: 'followed', afterId }, stop.signal)) {
        seen.push(numberOf(row));
        if (seen.length === count) break;
      }
      return seen;
    };
    const followers = [follow(0, 25), follow(ids[2] ?? 0, 22), follow(ids[4] ?? 0, 20)];
    const began = performance.now();
    for (let number = 5; number < 25; number += 1) {
      await record('followed', number);
      await record('somebody else', number);
    }
    const all = Array.from({ length: 25 }, (_, number) => number);
    expect(await Promise.all(followers)).toEqual([all, all.slice(3), all.slice(5)]);
    expect(performance.now() - began).toBeLessThan(4_000); // woken, not by looking again
  });

  it('stop being followed when the signal says so', async () => {
    const stop = new AbortController();
    const waiting = (async () => {
      for await (const _ of followEvents(hub, db, { kind: 'run', id: 'silent', afterId: 0 }, stop.signal))
        return 'one came';
      return 'ended';
    })();
    stop.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
  });
});

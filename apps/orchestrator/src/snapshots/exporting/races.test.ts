/** Exports, deletions and collectors over the same few chunks, each on connections of its own: only PostgreSQL has races. */
import type { ObjectStore } from '@fuse/object-store';
import { sql } from 'kysely';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Db } from '../../db/db.ts';
import { openTestDb, type TestDb } from '../../db/test-database.ts';
import { CHUNK_PREFIX, chunkKey } from './chunk-keys.ts';
import { collectChunks } from './collect-chunks.ts';
import { completeExport, referToChunks, type StoredChunk } from './export-store.ts';
import { chunkBytes, insertSnapshot, openTestStore, sumOf } from './exporting-testing.ts';
import { deleteReleased, releaseExport } from './release-export.ts';
import { sweepStore } from './sweep-store.ts';

const WORKERS = 8;
const ROUNDS = 40;
const names = Array.from({ length: 4 }, (_, index) => `chunk-${index}`);
const nameOf = new Map(names.map((name) => [sumOf(name), name]));
const signal = new AbortController().signal;

describe('exports and collectors of the same chunks', () => {
  let test: TestDb;
  let held: AsyncDisposable & { store: ObjectStore };
  beforeAll(async () => {
    test = await openTestDb('postgres');
    held = await openTestStore('file');
  }, 60_000);
  afterAll(async () => {
    await held[Symbol.asyncDispose]();
    await test[Symbol.asyncDispose]();
  });

  async function exportOne(db: Db, owner: string, wanted: string[]): Promise<string> {
    const { store } = held;
    const id = await insertSnapshot(db, null);
    await db.query
      .updateTable('snapshots')
      .set({ lease_owner: owner, export_state: 'running' })
      .where('id', '=', id)
      .execute();
    const mine = { snapshotId: id, owner };
    const { missing } = await db.transaction((tx) => referToChunks(tx, mine, wanted.map(sumOf)));
    const uploaded: StoredChunk[] = [];
    for (const sha256 of missing) {
      const bytes = chunkBytes(nameOf.get(sha256) ?? '');
      await store.put(chunkKey(sha256), bytes);
      uploaded.push({ sha256, stored_bytes: bytes.length });
    }
    await db.transaction((tx) => completeExport(tx, mine, { uploaded, manifestBytes: 0 }));
    return id;
  }

  const expectWhole = async (wanted: string[]) => {
    for (const name of wanted) expect((await held.store.head(chunkKey(sumOf(name)))).sizeBytes).toBeGreaterThan(0);
  };

  it('never lose a chunk that an export refers to, and lose every other one', async () => {
    const { store } = held;
    let working = WORKERS;
    const exporting = async (worker: number) => {
      const db = test.another({ maxConnections: 2 });
      const own: { id: string; wanted: string[] }[] = [];
      for (let round = 0; round < ROUNDS; round += 1) {
        const from = (worker + round * 3) % names.length;
        const wanted = [0, 1].map((step) => names[(from + step * (1 + (round % 3))) % names.length] ?? '');
        own.push({ id: await exportOne(db, `worker-${worker}`, wanted), wanted });
        await expectWhole(wanted);
        if (own.length < 2) continue;
        for (const each of own) await expectWhole(each.wanted);
        const gone = own.shift();
        if (gone === undefined) continue;
        const released = await db.transaction((tx) => releaseExport(tx, gone.id));
        await deleteReleased({ db, objectStore: store }, released);
      }
      working -= 1;
      for (const { id } of own) await db.transaction((tx) => releaseExport(tx, id));
    };
    const collecting = async (collect: (db: Db) => Promise<unknown>) => {
      const db = test.another({ maxConnections: 2 });
      while (working > 0) await collect(db);
    };
    await Promise.all([
      ...Array.from({ length: WORKERS }, (_, worker) => exporting(worker)),
      collecting((db) => collectChunks({ db, objectStore: store })),
      collecting((db) => collectChunks({ db, objectStore: store })),
      collecting((db) => sweepStore({ db, objectStore: store }, signal)),
    ]);
    await collectChunks({ db: test.db, objectStore: store });
    expect(await test.db.query.selectFrom('chunks').selectAll().execute()).toEqual([]);
    const left: string[] = [];
    for await (const { key } of store.list(CHUNK_PREFIX)) left.push(key);
    expect(left).toEqual([]);
  }, 120_000);

  it('make an export wait for a chunk that is being deleted, and upload it again', async () => {
    const { store } = held;
    const { db } = test;
    const gone = await exportOne(db, 'gone', ['chunk-0']);
    await db.transaction((tx) => releaseExport(tx, gone));
    let deleting: () => void = () => {};
    const underWay = new Promise<void>((resolve) => {
      deleting = resolve;
    });
    let goOn: () => void = () => {};
    const slow = Object.create(store, {
      delete: {
        value: async (key: string) => {
          deleting();
          await new Promise<void>((resolve) => {
            goOn = resolve;
          });
          return store.delete(key);
        },
      },
    }) as ObjectStore; // all else is the store's own
    const collected = collectChunks({ db: test.another(), objectStore: slow });
    await underWay;
    let isExported = false;
    const exported = exportOne(test.another(), 'waiting', ['chunk-0']).then((id) => {
      isExported = true;
      return id;
    });
    await expect.poll(() => lockWaiters(db)).toBeGreaterThan(0);
    expect(isExported).toBe(false);
    goOn();
    expect(await collected).toMatchObject({ objects: 1 });
    await exported;
    await expectWhole(['chunk-0']);
  });
});

async function lockWaiters(db: Db): Promise<number> {
  const { rows } = await sql<{ waiting: number }>`
    select count(*) as waiting from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`.execute(
    db.query,
  );
  return rows[0]?.waiting ?? 0;
}

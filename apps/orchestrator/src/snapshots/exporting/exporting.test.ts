import type { ObjectStore } from '@fuse/object-store';
import { Disposables } from '@fuse/runtime';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Db } from '../../db/db.ts';
import { openTestDb, quiet, type TestDb } from '../../db/test-database.ts';
import { EventHub } from '../../events/events.ts';
import { HostDirectory } from '../../hosts/host-directory.ts';
import { testSealer } from '../../secrets/test-sealer.ts';
import { CHUNK_PREFIX, chunkKey, MANIFEST_PREFIX, manifestKey } from './chunk-keys.ts';
import { collectChunks } from './collect-chunks.ts';
import { defaultExportConfig, type ExportConfig } from './export-config.ts';
import { claimExports } from './export-leases.ts';
import { completeExport, LostExport, referToChunks } from './export-store.ts';
import { chunkBytes, ExportingHost, insertSnapshot, openTestStore, snapshotRow, sumOf } from './exporting-testing.ts';
import { deleteReleased, releaseExport } from './release-export.ts';
import { SnapshotExporter } from './snapshot-exporter.ts';
import { sweepStore } from './sweep-store.ts';

const quick: ExportConfig = { ...defaultExportConfig, lookEveryMs: 20, leaseMs: 3_000, firstRetryMs: 10, maxTries: 3 };
const signal = new AbortController().signal;

describe.each([
  ['pglite', 'file'],
  ['postgres', 'file'],
  ['postgres', 's3'],
] as const)('exports on %s, %s store', (engine, kind) => {
  let disposables: Disposables;
  let test: TestDb;
  let db: Db;
  let store: ObjectStore;
  let host: ExportingHost;
  beforeEach(async () => {
    disposables = new Disposables(quiet);
    test = disposables.add('database', await openTestDb(engine));
    db = test.db;
    ({ store } = disposables.add('store', await openTestStore(kind)));
    host = disposables.add('host', await ExportingHost.start(db, store));
  }, 60_000);
  afterEach(() => disposables[Symbol.asyncDispose]());

  const start = async (changes: Partial<ExportConfig> = {}): Promise<SnapshotExporter> => {
    const hub = disposables.add('event hub', await EventHub.open(db));
    const hosts = disposables.add('host clients', new HostDirectory(db, hub, quiet, testSealer));
    const exporter = new SnapshotExporter({
      ...{ db, hosts, objectStore: store, log: quiet },
      config: { ...quick, ...changes },
    });
    disposables.add('exporter', exporter);
    await exporter.start();
    return exporter;
  };
  const snapshot = async (...names: string[]): Promise<string> => {
    const id = await insertSnapshot(db, host.id);
    host.snapshots.set(id, names);
    return id;
  };
  const settled = async (id: string) => {
    await expect
      .poll(async () => (await snapshotRow(db, id)).export_state, { timeout: 20_000, interval: 20 })
      .toMatch(/done|error/);
    return snapshotRow(db, id);
  };
  const keys = async (prefix: string): Promise<string[]> => {
    const found: string[] = [];
    for await (const { key } of store.list(prefix)) found.push(key);
    return found.sort();
  };
  const keysOf = (...names: string[]) => names.map((name) => chunkKey(sumOf(name))).sort();
  const bytesOf = (...names: string[]) => names.reduce((sum, name) => sum + chunkBytes(name).length, 0);
  const release = async (id: string) => {
    const released = await db.transaction((tx) => releaseExport(tx, id));
    return deleteReleased({ db, objectStore: store }, released, signal);
  };

  it('store each chunk once, and count for each snapshot what it added', async () => {
    await start();
    const first = await settled(await snapshot('a', 'b', 'c', 'a'));
    expect(first).toMatchObject({ export_state: 'done', manifest_key: manifestKey(first.id), lease_owner: null });
    expect(await keys(CHUNK_PREFIX)).toEqual(keysOf('a', 'b', 'c'));
    const manifestBytes = (await store.head(manifestKey(first.id))).sizeBytes;
    expect(first.exported_bytes).toBe(bytesOf('a', 'b', 'c') + manifestBytes);
    const second = await settled(await snapshot('b', 'c', 'd'));
    expect(second.exported_bytes).toBe(bytesOf('d') + (await store.head(manifestKey(second.id))).sizeBytes);
    expect([...host.uploads.values()]).toEqual([1, 1, 1, 1]);
  });

  it('go on where the host died, uploading nothing twice', async () => {
    let deaths = 0;
    host.beforeUpload = () => {
      // Twice: a connection that breaks when it is used again is tried once more by the client itself.
      if (host.uploads.size < 2 || deaths === 2) return;
      deaths += 1;
      throw new Error('dies');
    };
    await start();
    const row = await settled(await snapshot('a', 'b', 'c', 'd', 'e'));
    expect(row).toMatchObject({ export_state: 'done', export_tries: 1, export_error: null });
    expect(await keys(CHUNK_PREFIX)).toEqual(keysOf('a', 'b', 'c', 'd', 'e'));
    expect([...host.uploads.values()]).toEqual([1, 1, 1, 1, 1]);
    expect(row.exported_bytes).toBeGreaterThan(bytesOf('a', 'b', 'c', 'd', 'e'));
  });

  it('are taken over from an orchestrator that died', async () => {
    const id = await snapshot('a', 'b');
    const [claimed] = await claimExports(db.query, { owner: 'dead', leaseMs: 300, limit: 5 });
    expect(claimed?.id).toBe(id);
    await db.transaction((tx) => referToChunks(tx, { snapshotId: id, owner: 'dead' }, [sumOf('a'), sumOf('b')]));
    expect(await claimExports(db.query, { owner: 'other', leaseMs: 300, limit: 5 })).toEqual([]);
    await start();
    expect(await settled(id)).toMatchObject({ export_state: 'done' });
  });

  it('are tried again, then given up with the reason', async () => {
    host.refusal = { status: 503, code: 'unavailable' };
    await start();
    const id = await snapshot('a');
    expect(await settled(id)).toMatchObject({
      ...{ export_state: 'error', export_tries: 3, export_error: 'refused: unavailable' },
      ...{ state: 'ready', lease_owner: null },
    });
  });

  it('of a damaged snapshot are given up at once, and the snapshot is in error', async () => {
    host.refusal = { status: 500, code: 'integrity_error' };
    await start();
    expect(await settled(await snapshot('a'))).toMatchObject({
      ...{ export_state: 'error', export_tries: 1, state: 'error', last_error: 'refused: integrity_error' },
    });
  });

  it('of a snapshot that was lost before its turn end with it', async () => {
    const id = await snapshot('a');
    await db.query.updateTable('snapshots').set({ state: 'error', last_error: 'host lost' }).execute();
    await start();
    expect(await settled(id)).toMatchObject({ export_state: 'error', export_error: 'host lost' });
  });

  it('are made of every snapshot when so configured', async () => {
    const id = await snapshot('a');
    await db.query.updateTable('snapshots').set({ export_state: 'none', export_requested_at: null }).execute();
    await start({ when: 'always' });
    expect(await settled(id)).toMatchObject({ export_state: 'done' });
  });

  it('stop when their snapshot is deleted, and leave nothing', async () => {
    let reached: () => void = () => {};
    const underWay = new Promise<void>((resolve) => {
      reached = resolve;
    });
    let goOn: () => void = () => {};
    host.beforeUpload = () => {
      reached();
      return new Promise((resolve) => {
        goOn = resolve;
      });
    };
    const exporter = await start({ leaseMs: 60 });
    const id = await snapshot('a');
    await underWay;
    await release(id);
    host.beforeUpload = () => {};
    goOn(); // the host hears late of it
    await expect.poll(() => keys('snapshots')).toEqual([chunkKey(sumOf('a')), manifestKey(id)].sort());
    await exporter[Symbol.asyncDispose]();
    expect(await snapshotRow(db, id)).toMatchObject({ export_state: 'none', manifest_key: null });
    await db.query.deleteFrom('snapshots').execute();
    await sweepStore({ db, objectStore: store }, signal);
    expect(await keys('snapshots')).toEqual([]);
    expect(await db.query.selectFrom('chunks').selectAll().execute()).toEqual([]);
  });

  it('free on deletion what nobody else uses, and say how many bytes', async () => {
    await start();
    const [first, second] = [await snapshot('a', 'b', 'c'), await snapshot('b', 'c', 'd')];
    await settled(first);
    await settled(second);
    const manifestBytes = (await store.head(manifestKey(first))).sizeBytes;
    expect(await release(first)).toEqual({ objects: 2, bytes: bytesOf('a') + manifestBytes });
    expect(await keys(CHUNK_PREFIX)).toEqual(keysOf('b', 'c', 'd'));
    expect(await release(first)).toEqual({ objects: 0, bytes: 0 });
    await release(second);
    expect(await keys('snapshots')).toEqual([]);
  });

  it('upload again what a collector that was killed had begun to delete', async () => {
    await start();
    const first = await snapshot('a', 'b');
    await settled(first);
    await db.transaction((tx) => releaseExport(tx, first));
    // Dies after the objects are gone, before that is committed.
    const dying = Object.create(store, {
      delete: {
        value: async (key: string) => {
          await store.delete(key);
          throw new Error('killed');
        },
      },
    }) as ObjectStore; // all else is the store's own
    await expect(collectChunks({ db, objectStore: dying })).rejects.toThrow('killed');
    expect((await keys(CHUNK_PREFIX)).length).toBeLessThan(2);
    const second = await snapshot('a', 'b');
    expect(await settled(second)).toMatchObject({ export_state: 'done' });
    expect(await keys(CHUNK_PREFIX)).toEqual(keysOf('a', 'b'));
  });

  it('of a driver that lost its lease change nothing', async () => {
    const id = await snapshot('a');
    await claimExports(db.query, { owner: 'late', leaseMs: 0, limit: 1 });
    await claimExports(db.query, { owner: 'next', leaseMs: 60_000, limit: 1 });
    const late = { snapshotId: id, owner: 'late' };
    await expect(db.transaction((tx) => referToChunks(tx, late, [sumOf('a')]))).rejects.toThrow(LostExport);
    const done = { uploaded: [{ sha256: sumOf('a'), stored_bytes: 1 }], manifestBytes: 1 };
    await expect(db.transaction((tx) => completeExport(tx, late, done))).rejects.toThrow(LostExport);
    expect(await db.query.selectFrom('chunks').selectAll().execute()).toEqual([]);
  });

  it('are never done while a chunk is missing', async () => {
    const id = await snapshot('a', 'b');
    const held = { snapshotId: id, owner: 'me' };
    await claimExports(db.query, { owner: 'me', leaseMs: 60_000, limit: 1 });
    await db.transaction((tx) => referToChunks(tx, held, [sumOf('a'), sumOf('b')]));
    const half = { uploaded: [{ sha256: sumOf('a'), stored_bytes: 1 }], manifestBytes: 1 };
    await expect(db.transaction((tx) => completeExport(tx, held, half))).rejects.toThrow('did not upload 1 chunks');
    expect(await snapshotRow(db, id)).toMatchObject({ export_state: 'running', manifest_key: null });
  });

  it('are swept of objects that no row owns, and of nothing else', async () => {
    await start();
    const id = await snapshot('a');
    await settled(id);
    const foreign = [`${CHUNK_PREFIX}/readme`, `${MANIFEST_PREFIX}/below/readme`];
    for (const key of [...foreign, chunkKey(sumOf('x')), manifestKey('snap-gone')])
      await store.put(key, chunkBytes('x'));
    const swept = await sweepStore({ db, objectStore: store }, signal);
    expect(swept).toEqual({ objects: 2, bytes: 2 * bytesOf('x') });
    expect(await keys('snapshots')).toEqual([...keysOf('a'), manifestKey(id), ...foreign].sort());
  });
});

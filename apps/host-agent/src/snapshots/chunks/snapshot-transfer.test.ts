import { randomBytes } from 'node:crypto';
import { open, readdir, readFile, stat, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { type ObjectStore, openObjectStore } from '@fuse/object-store';
import { createLogger, Disposables } from '@fuse/runtime';
import { startS3Server, temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SNAPSHOT_DISK_FILE } from '../snapshot-record.ts';
import { Snapshots } from '../snapshots.ts';
import type { SnapshotAbout } from '../stored-snapshot.ts';
import { CHUNK_BYTES, chunkKey } from './chunk.ts';
import { SnapshotTransfer } from './snapshot-transfer.ts';

const log = createLogger({ name: 'test', level: process.env.FUSE_TEST_LOG ?? 'silent' });
const signal = new AbortController().signal;
const MEMORY_MB = 64;
const PREFIX = 'snapshots/chunks';
const MIB = 1024 ** 2;

type Data = { at: number; bytes: Buffer }[];

const about = (id: string, change: Partial<SnapshotAbout> = {}): SnapshotAbout => ({
  ...{ id, tag: 'cluster', vm_id: 'vm-1', image: 'base', include_memory: true, created_at: '2026-01-01T00:00:00Z' },
  shape: { cpus: 1, ram_mb: MEMORY_MB, storage_gb: 1 },
  made_on: { image: 'i', kernel: 'k', initramfs: 'r', driver: 'd' },
  ...change,
});

async function writeSparse(path: string, size: number, data: Data): Promise<void> {
  await using file = await open(path, 'wx');
  await file.truncate(size);
  for (const { at, bytes } of data) await file.write(bytes, 0, bytes.length, at);
}

describe.each(['file', 's3'] as const)('snapshots and a %s store', (kind) => {
  let disposables: Disposables;
  let store: ObjectStore;
  beforeEach(async () => {
    disposables = new Disposables(log);
    const config =
      kind === 's3'
        ? disposables.add('S3 server', await startS3Server()).config
        : { kind, directory: disposables.add('objects', await temporaryDirectory()).path };
    store = disposables.add('store', await openObjectStore(config));
  });
  afterEach(() => disposables[Symbol.asyncDispose]());

  const openHost = async (through: ObjectStore = store) => {
    const { path } = disposables.add('directory', await temporaryDirectory());
    const directory = join(path, 'snapshots');
    const snapshots = disposables.add('snapshots', await Snapshots.open({ directory, log }));
    const transfer = new SnapshotTransfer({ snapshots, store: through, log, directory: path, storageReserveBytes: 0 });
    return { directory, snapshots, transfer };
  };
  type Host = Awaited<ReturnType<typeof openHost>>;

  const add = (host: Host, what: SnapshotAbout, parts: { memory?: Data; device?: Data; disk: Data }) =>
    host.snapshots.add(what, async (directory) => {
      await writeSparse(join(directory, SNAPSHOT_DISK_FILE), 256 * MIB, parts.disk);
      if (!what.include_memory) return { files: [SNAPSHOT_DISK_FILE] };
      await writeSparse(join(directory, 'memory'), MEMORY_MB * MIB, parts.memory ?? []);
      await writeSparse(join(directory, 'device'), 200_001, parts.device ?? []);
      return { files: ['memory', 'device', SNAPSHOT_DISK_FILE] };
    });
  const manifestKey = (id: string) => `snapshots/manifests/${id}`;
  const exportAll = async (host: Host, id: string, stored = new Set<string>()) => {
    const { chunks } = await host.transfer.chunks(id, signal);
    const missing = chunks.map(({ sha256 }) => sha256).filter((sha256) => !stored.has(sha256));
    const order = { chunk_prefix: PREFIX, manifest_key: manifestKey(id), missing };
    const exported = await host.transfer.export(id, order, signal);
    for (const { sha256 } of exported.uploaded) stored.add(sha256);
    return exported;
  };
  const importTo = (host: Host, id: string) =>
    host.transfer.import({ snapshotId: id, manifestKey: manifestKey(id) }, signal);
  const noise = (count = 1) => randomBytes(count * CHUNK_BYTES);
  const chunkObjects = async () => {
    const keys: string[] = [];
    for await (const { key } of store.list(PREFIX)) keys.push(key);
    return keys;
  };
  const flip = async (key: string) => {
    const bytes = await buffer((await store.get(key)).body);
    bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] ?? 0) ^ 1;
    await store.put(key, bytes); // whole as an object: only its content is not what its name says
  };

  it('come to another host as they were, holes and all', async () => {
    const [from, to] = [await openHost(), await openHost()];
    const shared = noise();
    const memory: Data = [
      { at: 4_096, bytes: randomBytes(100_000) },
      { at: 10 * MIB, bytes: shared },
      { at: 20 * MIB + 5, bytes: randomBytes(3 * MIB) },
      { at: MEMORY_MB * MIB - 4_096, bytes: randomBytes(4_096) },
      { at: 30 * MIB, bytes: Buffer.alloc(MIB) },
    ];
    const device = [{ at: 0, bytes: randomBytes(200_001) }];
    const disk = [
      { at: 128 * MIB, bytes: shared },
      { at: 256 * MIB - 1, bytes: Buffer.from([1]) },
    ];
    await add(from, about('snap-a', { parent_id: 'snap-0' }), { memory, device, disk });
    await exportAll(from, 'snap-a');
    expect((await chunkObjects()).length).toBe((await from.transfer.chunks('snap-a', signal)).chunks.length);
    await importTo(to, 'snap-a');
    for (const name of ['memory', 'device', SNAPSHOT_DISK_FILE]) {
      const [one, other] = [join(from.directory, 'snap-a', name), join(to.directory, 'snap-a', name)];
      expect((await readFile(other)).equals(await readFile(one))).toBe(true);
      expect((await stat(other)).mode & 0o777).toBe(0o600);
    }
    expect((await stat(join(to.directory, 'snap-a', 'memory'))).blocks * 512).toBeLessThan(6 * MIB);
    await to.snapshots.get('snap-a').waitForEnd(20_000, signal);
    expect(to.snapshots.get('snap-a').view()).toMatchObject({
      ...{ state: 'durable', tag: 'cluster', image: 'base', parent_id: 'snap-0', created_at: '2026-01-01T00:00:00Z' },
    });
  });

  it('of the disk alone need nothing else', async () => {
    const [from, to] = [await openHost(), await openHost()];
    await add(from, about('snap-d', { include_memory: false }), { disk: [{ at: 0, bytes: noise(3) }] });
    await exportAll(from, 'snap-d');
    await importTo(to, 'snap-d');
    expect(await readdir(join(to.directory, 'snap-d'))).toContain(SNAPSHOT_DISK_FILE);
  });

  it('that differ little store little', async () => {
    const host = await openHost();
    const same = noise(40);
    await add(host, about('snap-1'), { memory: [{ at: 0, bytes: same }], disk: [] });
    const changed = Buffer.from(same);
    changed[7 * CHUNK_BYTES + 9] = (changed[7 * CHUNK_BYTES + 9] ?? 0) ^ 1;
    await add(host, about('snap-2'), { memory: [{ at: 0, bytes: changed }], disk: [] });
    const stored = new Set<string>();
    expect((await exportAll(host, 'snap-1', stored)).uploaded.length).toBe(40);
    expect((await exportAll(host, 'snap-2', stored)).uploaded.length).toBe(1);
    expect((await exportAll(host, 'snap-2', stored)).uploaded.length).toBe(0);
  });

  it('are refused, and nothing of them is left, when a chunk is damaged or missing', async () => {
    const [from, to] = [await openHost(), await openHost()];
    await add(from, about('snap-a'), { memory: [{ at: 0, bytes: noise(20) }], disk: [{ at: 0, bytes: noise(2) }] });
    await exportAll(from, 'snap-a');
    const [first = '', second = ''] = await chunkObjects();
    const whole = await buffer((await store.get(first)).body);
    for (const spoil of [() => flip(first), () => store.delete(first), () => store.put(first, Buffer.alloc(2 * MIB))]) {
      await spoil();
      await expect(importTo(to, 'snap-a')).rejects.toMatchObject({ code: 'integrity_error' });
      expect(await readdir(to.directory)).toEqual([]);
      expect(to.snapshots.list()).toEqual([]);
    }
    await store.put(first, whole);
    await importTo(to, 'snap-a');
    await flip(second); // too late to matter
    expect(to.snapshots.has('snap-a')).toBe(true);
  });

  it('are refused when their manifest is damaged, another snapshot’s, or not there', async () => {
    const [from, to] = [await openHost(), await openHost()];
    await add(from, about('snap-a'), { disk: [{ at: 0, bytes: noise() }] });
    await exportAll(from, 'snap-a');
    const other = { snapshotId: 'snap-b', manifestKey: manifestKey('snap-a') };
    await expect(to.transfer.import(other, signal)).rejects.toMatchObject({ code: 'integrity_error' });
    await expect(importTo(to, 'snap-none')).rejects.toMatchObject({ code: 'not_found' });
    await flip(manifestKey('snap-a'));
    await expect(importTo(to, 'snap-a')).rejects.toMatchObject({ code: 'integrity_error' });
    expect(await readdir(to.directory)).toEqual([]);
  });

  it('are downloaded once when many ask at the same time, also when the first one leaves', async () => {
    const leaves = new AbortController();
    let reads = 0;
    const counting = Object.create(store, {
      get: {
        value: (key: string, options: object) => {
          if (key.startsWith(PREFIX) && reads++ === 0) leaves.abort(new Error('left'));
          return store.get(key, options);
        },
      },
    }) as ObjectStore; // all else is the store's own
    const [from, to] = [await openHost(), await openHost(counting)];
    await add(from, about('snap-a'), { memory: [{ at: 0, bytes: noise(64) }], disk: [] });
    await exportAll(from, 'snap-a');
    const wanted = { snapshotId: 'snap-a', manifestKey: manifestKey('snap-a') };
    const first = to.transfer.import(wanted, leaves.signal);
    const others = Promise.all(Array.from({ length: 5 }, () => importTo(to, 'snap-a')));
    await Promise.all([expect(first).rejects.toThrow('left'), others]);
    expect(reads).toBe(64);
  });

  it('that are damaged on their host are not exported', async () => {
    const host = await openHost();
    await add(host, about('snap-a'), { memory: [{ at: 0, bytes: noise(2) }], disk: [] });
    await host.snapshots.get('snap-a').waitForEnd(20_000, signal);
    await truncate(join(host.directory, 'snap-a', 'memory'), 0);
    await expect(host.transfer.chunks('snap-a', signal)).rejects.toMatchObject({ code: 'integrity_error' });
  });

  it('stop uploading when the caller leaves, and go on from there', async () => {
    const leaves = new AbortController();
    let puts = 0;
    const counting = Object.create(store, {
      put: {
        value: async (key: string, body: Buffer, options: object) => {
          const info = await store.put(key, body, options);
          puts += 1;
          if (puts === 10) leaves.abort(new Error('left'));
          return info;
        },
      },
    }) as ObjectStore; // all else is the store's own
    const [host, other] = [await openHost(counting), await openHost()];
    await add(host, about('snap-a'), { memory: [{ at: 0, bytes: noise(100) }], disk: [] });
    const { chunks } = await host.transfer.chunks('snap-a', signal);
    const order = { chunk_prefix: PREFIX, manifest_key: manifestKey('snap-a') };
    const all = chunks.map(({ sha256 }) => sha256);
    await expect(host.transfer.export('snap-a', { ...order, missing: all }, leaves.signal)).rejects.toThrow('left');
    const there = new Set(await chunkObjects());
    expect(there.size).toBeLessThan(100);
    await expect(importTo(other, 'snap-a')).rejects.toMatchObject({ code: 'not_found' });
    const missing = all.filter((sha256) => !there.has(chunkKey(PREFIX, sha256)));
    const { uploaded } = await host.transfer.export('snap-a', { ...order, missing }, signal);
    expect(uploaded.length).toBe(missing.length);
    await importTo(other, 'snap-a');
  });

  it('know no chunk that is not theirs', async () => {
    const host = await openHost();
    await add(host, about('snap-a'), { disk: [] });
    const order = { chunk_prefix: PREFIX, manifest_key: manifestKey('snap-a'), missing: ['0'.repeat(64)] };
    await expect(host.transfer.export('snap-a', order, signal)).rejects.toMatchObject({ code: 'invalid_argument' });
    await expect(host.transfer.chunks('snap-none', signal)).rejects.toMatchObject({ code: 'not_found' });
  });
});

import { createLogger } from '@fuse/runtime';
import { sql } from 'kysely';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ensureCluster } from '../db/cluster.ts';
import { jsonb } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { engines } from '../db/test-database.ts';
import { transition } from '../environments/environment-store.ts';
import { insertFile } from '../files/file-store.ts';
import { LeaderLease } from '../reconciling/leader-lease.ts';
import { openScene, type Scene } from '../reconciling/test-replicas.ts';
import { testSealer } from '../secrets/test-sealer.ts';
import { Meter } from './meter.ts';
import { UsageService } from './usage-service.ts';

const log = createLogger({ name: 'usage', level: 'silent' });
const HOUR_MS = 3_600_000;
const never = new AbortController().signal;

describe.each(engines)('usage on %s', (engine) => {
  let scene: Scene;
  let usage: UsageService;
  beforeEach(async () => {
    scene = await openScene(engine, { capacity: { cpus: 100, ram_mb: 100_000 } });
    await ensureCluster(scene.db, testSealer);
    usage = new UsageService(scene.db);
  }, 60_000);
  afterEach(() => scene[Symbol.asyncDispose]());

  const meter = (db = scene.db) =>
    new Meter({ db, log, lease: new LeaderLease(db, { name: 'meter', owner: 'test', ms: 1_000 }), intervalMs: 1_000 });
  const round = (db = scene.db) => meter(db).meter(never);
  /** Of everything up to now. */
  const total = async (tenantId = 'default') => {
    const now = Date.now();
    return (await usage.history(tenantId, { from: new Date(now - 48 * HOUR_MS), to: new Date(now + HOUR_MS) })).total;
  };
  const ledger = () => scene.db.query.selectFrom('usage').selectAll().orderBy('hour').execute();
  /** Running for so many seconds, of 2 cpus and 512 MiB. */
  const running = async (taskId: string, seconds: number): Promise<EnvironmentRow> => {
    const admitted = await scene.admit(taskId, undefined, { spec: { cpus: 2, ram_mb: 512 } });
    const row = await scene.db.transaction((tx) => transition(tx, admitted, 'running'));
    if (row === undefined) throw new Error('not running');
    await ago(row.uid, seconds);
    return row;
  };
  const ago = (uid: string, seconds: number) =>
    sql`update environments set metered_at = now() - ${seconds}::int * interval '1 second' where uid = ${uid}`.execute(
      scene.db.query,
    );
  /** What 2 cpus and 512 MiB are in so many seconds; a test takes a while itself. */
  const about = (seconds: number) => ({
    vcpu_seconds: expect.closeTo(2 * seconds, -2),
    gib_seconds: expect.closeTo(seconds / 2, -2),
  });
  const end = (row: EnvironmentRow) => scene.db.transaction((tx) => transition(tx, row, 'destroying'));

  it('is told before it is in the ledger, and is there once when it ended', async () => {
    const row = await running('told', 1_000);
    expect(await total()).toMatchObject({ ...about(1_000), egress_bytes: 0 });
    expect(await ledger()).toEqual([]);
    const ended = await end(row);
    expect(ended?.metered_at).toBeNull();
    const after = await total();
    expect(after).toMatchObject(about(1_000));
    await round();
    expect(await total()).toEqual(after);
  });

  it('begins when it runs, and stands still while it is paused', async () => {
    const admitted = await scene.admit('paused', undefined, { spec: { cpus: 2, ram_mb: 512 } });
    expect(admitted.metered_at).toBeNull();
    const row = await scene.db.transaction((tx) => transition(tx, admitted, 'running'));
    if (row === undefined) throw new Error('not running');
    expect(row.metered_at).not.toBeNull();
    await ago(row.uid, 500);
    const paused = await scene.db.transaction(async (tx) => {
      const pausing = await transition(tx, row, 'pausing');
      return pausing && transition(tx, pausing, 'paused');
    });
    if (paused === undefined) throw new Error('not paused');
    const before = await total();
    await round();
    expect(await total()).toEqual(before);
    await scene.db.transaction(async (tx) => {
      const resuming = await transition(tx, paused, 'resuming');
      return resuming && transition(tx, resuming, 'running');
    });
    await ago(row.uid, 300);
    expect(await total()).toMatchObject(about(800));
  });

  it('is cut at full hours, however late it is metered', async () => {
    const row = await running('long', 0);
    // From half past an hour, three and a half hours ago or so, up to now.
    await sql`update environments set metered_at = date_trunc('hour', now(), 'UTC') - interval '210 minutes' where uid = ${row.uid}`.execute(
      scene.db.query,
    );
    await round();
    const hours = await ledger();
    expect(hours.slice(0, 4).map(({ vcpu_seconds }) => vcpu_seconds)).toEqual([3_600, 7_200, 7_200, 7_200]);
    for (const { hour } of hours) expect(hour.getTime() % HOUR_MS).toBe(0);
    const from = hours[1]?.hour ?? new Date();
    const to = hours[3]?.hour ?? new Date();
    const part = await usage.history('default', { from, to });
    expect(part.hours.map(({ hour }) => hour)).toEqual([hours[1]?.hour.toISOString(), hours[2]?.hour.toISOString()]);
    expect(part.total).toMatchObject({ vcpu_seconds: 14_400, gib_seconds: 3_600 });
  });

  it('is counted once by several at once, and while it ends', async () => {
    const other = scene.test.another();
    const rows = await Promise.all(Array.from({ length: 6 }, (_, at) => running(`race-${at}`, 600)));
    const ending = rows.slice(0, 3).map((row) => end(row));
    await Promise.all([round(), round(other), round(), ...ending]);
    await round(other);
    expect(await total()).toMatchObject({
      vcpu_seconds: expect.closeTo(6 * 1_200, -2.5),
      gib_seconds: expect.closeTo(6 * 300, -2.5),
    });
  });

  it('counts nothing of a transaction that does not commit', async () => {
    const row = await running('rolled-back', 600);
    await expect(
      scene.db.transaction(async (tx) => {
        await transition(tx, row, 'destroying');
        throw new Error('dies before the commit');
      }),
    ).rejects.toThrow('dies');
    expect(await ledger()).toEqual([]);
    // Changed since it was read: neither the state nor the ledger moves.
    const stale = { ...row, version: row.version + 1 };
    expect(await end(stale)).toBeUndefined();
    expect(await ledger()).toEqual([]);
    expect(await total()).toMatchObject(about(600));
  });

  it('outlives what was used, and is each tenant’s own', async () => {
    await scene.db.query
      .insertInto('tenants')
      .values({ id: 'acme', quotas: jsonb({}) })
      .execute();
    const mine = await scene.admit('theirs', undefined, { tenantId: 'acme', spec: { cpus: 2, ram_mb: 512 } });
    const row = await scene.db.transaction((tx) => transition(tx, mine, 'running'));
    if (row === undefined) throw new Error('not running');
    await ago(row.uid, 1_000);
    await end(row);
    await scene.db.query.deleteFrom('environments').where('uid', '=', row.uid).execute();
    expect(await total('acme')).toMatchObject(about(1_000));
    expect((await total()).vcpu_seconds).toBe(0);
    expect(await usage.now('acme')).toMatchObject({ tenant_id: 'acme', used: { environments: 0 }, quotas: {} });
  });

  it('of stored bytes is their size over time, up to when they go', async () => {
    const file = { id: 'file-1', tenantId: 'default', objectKey: 'files/1', sizeBytes: 1_000, sha256: 'ab' };
    await insertFile(scene.db.query, file, 1_000_000);
    const { id: snapshot } = await seedSnapshot(500);
    const ageOf = (seconds: number) => sql<Date>`now() - ${seconds}::int * interval '1 second'`;
    await scene.db.query
      .updateTable('cluster')
      .set({ stored_metered_at: ageOf(2_000) })
      .execute();
    await scene.db.query
      .updateTable('files')
      .set({ created_at: ageOf(1_000) })
      .execute(); // younger than that
    await scene.db.query
      .updateTable('snapshots')
      .set({ created_at: ageOf(9_000) })
      .execute(); // older
    const expected = 1_000 * 1_000 + 500 * 2_000;
    const near = { stored_byte_seconds: expect.closeTo(expected, -5) };
    expect(await total()).toMatchObject(near);
    await Promise.all([round(), round()]);
    expect(await total()).toMatchObject(near);
    await scene.db.query.deleteFrom('files').execute();
    await scene.db.query.deleteFrom('snapshots').where('id', '=', snapshot).execute();
    const gone = await total();
    expect(gone).toMatchObject(near);
    await round();
    expect((await total()).stored_byte_seconds).toBe(gone.stored_byte_seconds);
  });

  async function seedSnapshot(storedBytes: number): Promise<{ id: string }> {
    const row = await running('snapshotted', 0);
    return scene.db.query
      .insertInto('snapshots')
      .values({
        id: 'snap-1',
        environment_uid: row.uid,
        vm_id: row.id,
        task_id: row.task_id,
        host_vm_id: row.vm_id,
        host_id: row.host_id,
        state: 'ready',
        include_memory: true,
        image: row.image,
        spec: jsonb({}),
        cpus: row.cpus,
        ram_mb: row.ram_mb,
        storage_gb: row.storage_gb,
        stored_bytes: storedBytes,
      })
      .returning('id')
      .executeTakeFirstOrThrow();
  }
});

import { writeFile } from 'node:fs/promises';
import { AppError, DEFAULT_TENANT } from '@fuse/contract';
import { sql } from 'kysely';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { EnvironmentRow, SnapshotRow } from '../db/schema.ts';
import { engines, quiet } from '../db/test-database.ts';
import { environmentByUid } from '../environments/environment-store.ts';
import { openScene, type Replica, type Scene } from '../reconciling/test-replicas.ts';
import { Checkpointer } from './checkpointer.ts';

const HOUR = 3_600;

describe.each(engines)('checkpoints on %s', (engine) => {
  let scene: Scene;
  let replica: Replica;
  beforeEach(async () => {
    scene = await openScene(engine);
    replica = scene.replica();
  }, 60_000);
  afterEach(() => scene[Symbol.asyncDispose]());

  const running = async (task: string, keep = 2): Promise<EnvironmentRow> => {
    const lifetime = { checkpoint_interval_seconds: HOUR, checkpoint_keep: keep };
    const { uid } = await scene.admit(task, replica.environments, { lifetime });
    return replica.environments.start(uid);
  };
  /** As if an interval had passed. */
  const makeDue = ({ uid }: EnvironmentRow) =>
    sql`update environments set created_at = created_at - interval '1 hour', checkpointed_at = checkpointed_at - interval '1 hour'
      where uid = ${uid}`.execute(scene.db.query);
  const snapshotsOf = ({ uid }: EnvironmentRow): Promise<SnapshotRow[]> =>
    scene.db.query
      .selectFrom('snapshots')
      .selectAll()
      .where('environment_uid', '=', uid)
      .orderBy('created_at')
      .orderBy('id')
      .execute();
  const statesOf = async (row: EnvironmentRow) => (await snapshotsOf(row)).map(({ state }) => state);
  const checkpoint = async (row: EnvironmentRow) => {
    await makeDue(row);
    await replica.reconcile();
  };
  /** Retired in one cycle, collected in the next, with room for one that was begun too early. */
  const collect = async () => {
    for (let cycle = 0; cycle < 3; cycle += 1) await replica.reconcile();
  };

  it('are taken every interval while it runs, and not sooner', async () => {
    const row = await running('a');
    await replica.reconcile();
    expect(await snapshotsOf(row)).toEqual([]);
    await checkpoint(row);
    const [taken] = await snapshotsOf(row);
    expect(taken).toMatchObject({
      state: 'ready',
      is_checkpoint: true,
      mode: 'auto',
      comment: 'checkpoint',
      include_memory: true,
      retention_until: null,
    });
    const read = await environmentByUid(scene.db.query, row.uid);
    expect(read).toMatchObject({ state: 'running', checkpointed_at: expect.any(Date) });
    await replica.reconcile();
    expect(await statesOf(row)).toEqual(['ready']);
    await replica.environments.pause(row.uid);
    await checkpoint(row);
    expect(await statesOf(row)).toEqual(['ready']);
    await replica.environments.resume(row.uid);
    await replica.reconcile();
    expect(await statesOf(row)).toEqual(['ready', 'ready']);
  });

  it('are kept as many as asked, the newest; other snapshots and other environments are left alone', async () => {
    const [row, other] = [await running('a', 2), await running('other', 2)];
    const { snapshot: manual } = await replica.snapshots.create({
      tenantId: 'default',
      vmId: row.id,
      request: {},
      idempotent: undefined,
    });
    await checkpoint(other);
    const seen: string[] = [];
    for (let round = 0; round < 5; round += 1) {
      await checkpoint(row);
      const newest = (await snapshotsOf(row)).at(-1);
      seen.push(newest?.id ?? '');
    }
    await collect();
    expect(new Set((await snapshotsOf(row)).map(({ id }) => id))).toEqual(new Set([manual.id, ...seen.slice(-2)]));
    expect(await statesOf(other)).toEqual(['ready']);
    expect(scene.host.snapshots.kept.size).toBe(4);
  });

  it('do not overlap for one environment, and hold up nothing else', async () => {
    const [slow, other] = [await running('slow'), await running('other')];
    let finish = () => {};
    const flushed = new Promise<void>((resolve) => {
      finish = resolve;
    });
    scene.host.snapshots.flushing = () => flushed;
    await makeDue(slow);
    await replica.reconciler.cycle();
    await expect.poll(() => scene.host.snapshots.kept.size).toBe(1);
    expect(await statesOf(slow)).toEqual(['creating']);
    scene.host.snapshots.flushing = async () => {};
    await makeDue(slow);
    await makeDue(other);
    await replica.reconciler.cycle();
    await expect.poll(() => statesOf(other)).toEqual(['ready']);
    expect(await statesOf(slow)).toEqual(['creating']);
    finish();
    await replica.reconciler.settled();
    expect(await statesOf(slow)).toEqual(['ready']);
    await replica.reconcile();
    expect(await statesOf(slow)).toEqual(['ready', 'ready']);
  });

  it('are taken once by two processes that both believe to lead', async () => {
    const row = await running('a');
    await makeDue(row);
    const other = scene.replica();
    const checkpointers = [replica, other].map(
      ({ snapshots }) => new Checkpointer({ db: scene.db, snapshots, log: quiet, keepMs: 60_000 }),
    );
    await Promise.all(checkpointers.map((checkpointer) => checkpointer.startDue()));
    await Promise.all(checkpointers.map((checkpointer) => checkpointer.settled()));
    expect(await statesOf(row)).toEqual(['ready']);
    expect([...scene.host.snapshots.taken.values()]).toEqual([1]);
  });

  it('count in their tenant’s snapshot bytes: none is begun without room, one that turns out too large goes at once, and its environment runs on', async () => {
    const quota = (bytes: number | undefined) => {
      const quotas = JSON.stringify(bytes === undefined ? {} : { snapshot_bytes: bytes });
      return sql`update tenants set quotas = ${quotas}::jsonb where id = ${DEFAULT_TENANT}`.execute(scene.db.query);
    };
    const row = await running('a');
    await writeFile(`${scene.host.vms.get(row.vm_id)?.root}/big`, Buffer.alloc(1_000));
    await checkpoint(row);
    const [first] = await snapshotsOf(row);
    const bytes = first?.stored_bytes ?? 0;
    expect(bytes).toBeGreaterThan(0);

    await quota(bytes);
    await checkpoint(row);
    expect(await statesOf(row)).toEqual(['ready']); // nothing was begun
    expect(scene.host.snapshots.kept.size).toBe(1);

    await quota(2 * bytes - 1);
    await checkpoint(row);
    expect(await snapshotsOf(row)).toMatchObject([
      { state: 'ready' },
      {
        state: 'error',
        last_error: expect.stringMatching(/^quota snapshot_bytes: /),
        retention_until: expect.any(Date),
      },
    ]);
    await collect();
    expect(await statesOf(row)).toEqual(['ready']);
    expect(scene.host.snapshots.kept.size).toBe(1);
    expect(await environmentByUid(scene.db.query, row.uid)).toMatchObject({ state: 'running' });

    await quota(undefined);
    await replica.reconcile();
    expect(await statesOf(row)).toEqual(['ready']); // tried again an interval later
    await checkpoint(row);
    expect(await statesOf(row)).toEqual(['ready', 'ready']);
  });

  it('that fail say why, and are tried again an interval later', async () => {
    const row = await running('a');
    scene.host.before = ({ path }) => {
      if (path.includes('/snapshots/')) throw new AppError('unavailable', 'no disk left');
    };
    await checkpoint(row);
    expect(await snapshotsOf(row)).toMatchObject([{ state: 'error', last_error: 'no disk left', is_checkpoint: true }]);
    scene.host.before = () => {};
    scene.host.snapshots.flushing = () => Promise.reject(new Error('the disk broke'));
    await replica.reconcile();
    expect(await statesOf(row)).toEqual(['error']);
    await checkpoint(row);
    expect((await snapshotsOf(row)).at(-1)).toMatchObject({
      state: 'error',
      last_error: expect.stringContaining('the disk broke'),
    });
    scene.host.snapshots.flushing = async () => {};
    expect(await scene.state(row.uid)).toBe('running');
    await checkpoint(row);
    expect(await statesOf(row)).toEqual(['error', 'error', 'ready']);
  });

  it('are finished by another process when theirs is gone', async () => {
    const row = await running('a');
    let finish = () => {};
    const flushed = new Promise<void>((resolve) => {
      finish = resolve;
    });
    scene.host.snapshots.flushing = () => flushed;
    await makeDue(row);
    await replica.reconciler.cycle();
    await expect.poll(() => scene.host.snapshots.kept.size).toBe(1);
    await replica.snapshots[Symbol.asyncDispose]();
    await replica.reconciler[Symbol.asyncDispose]();
    expect(await statesOf(row)).toEqual(['creating']);
    finish();
    const other = scene.replica();
    await other.reconcile();
    expect(await statesOf(row)).toEqual(['ready']);
  });

  it('stay while something starts from them', async () => {
    const row = await running('a', 1);
    await checkpoint(row);
    const [oldest] = await snapshotsOf(row);
    if (oldest === undefined) throw new Error('no checkpoint');
    const seed = { snapshotId: oldest.id, hostId: 'host-1', isExported: false, arch: 'amd64', fallback: undefined };
    const started = await scene.admit('b', replica.environments, { seed });
    await sql`update environments set lease_until = now() + interval '1 minute' where uid = ${started.uid}`.execute(
      scene.db.query,
    );
    await checkpoint(row);
    await replica.reconciler.cycle();
    expect((await snapshotsOf(row)).map(({ id }) => id)).toContain(oldest.id);
    await replica.environments.start(started.uid);
    await collect();
    expect((await snapshotsOf(row)).map(({ id }) => id)).not.toContain(oldest.id);
    expect(await statesOf(row)).toEqual(['ready']);
  });

  it('outlive an environment that is gone, for as long as they are kept', async () => {
    const [lost, destroyed] = [await running('lost'), await running('destroyed')];
    for (const row of [lost, destroyed]) await checkpoint(row);
    scene.host.killVm(lost.vm_id);
    await replica.environments.destroy(destroyed.uid);
    await collect();
    expect(await scene.state(lost.uid)).toBe('failed');
    for (const row of [lost, destroyed]) {
      const [kept] = await snapshotsOf(row);
      const days = ((kept?.retention_until?.getTime() ?? 0) - Date.now()) / 86_400_000;
      expect(days).toBeGreaterThan(6.9);
      expect(days).toBeLessThan(7);
    }
    await sql`update snapshots set retention_until = null`.execute(scene.db.query);
    await replica[Symbol.asyncDispose]();
    const later = scene.replica({ keepCheckpointsMs: 0 });
    for (let cycle = 0; cycle < 3; cycle += 1) await later.reconcile();
    for (const row of [lost, destroyed]) expect(await snapshotsOf(row)).toEqual([]);
    expect(scene.host.snapshots.kept.size).toBe(0);
  });
});

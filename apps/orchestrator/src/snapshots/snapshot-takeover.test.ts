import { AppError } from '@fuse/contract';
import { sql } from 'kysely';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { EnvironmentRow, SnapshotRow } from '../db/schema.ts';
import { engines } from '../db/test-database.ts';
import { environmentByUid } from '../environments/environment-store.ts';
import { seedFrom } from '../environments/seed.ts';
import { HostService } from '../hosts/host-service.ts';
import { TestHost } from '../hosts/test-host.ts';
import { openScene, type Replica, type Scene, TAG } from '../reconciling/test-replicas.ts';
import { testSealer } from '../secrets/test-sealer.ts';
import { snapshotById } from './snapshot-store.ts';

describe.each(engines)('snapshots that a process left behind, on %s', (engine) => {
  let scene: Scene;
  let first: Replica;
  let second: Replica;
  beforeEach(async () => {
    scene = await openScene(engine);
    first = scene.replica();
    second = scene.replica();
  }, 60_000);
  afterEach(() => scene?.[Symbol.asyncDispose]());

  let tasks = 0;
  const running = async (): Promise<EnvironmentRow> => {
    const { uid } = await scene.admit(`t-${++tasks}`, first.environments);
    return first.environments.start(uid);
  };
  /** The row is committed, and nothing more has happened. */
  const begun = (environment: EnvironmentRow): Promise<SnapshotRow> =>
    scene.db.transaction((tx) => first.snapshots.begin(tx, { environment, request: {} }));
  const ready = async (environment: EnvironmentRow) => first.snapshots.take(await begun(environment)).ready;
  const state = async (id: string) => (await snapshotById(scene.db.query, id))?.state;
  /** Until `wanted` is so: leases have to run out. */
  const reconcileUntil = (wanted: () => Promise<boolean>) =>
    expect
      .poll(
        async () => {
          await second.reconcile();
          return wanted();
        },
        { timeout: 20_000, interval: 100 },
      )
      .toBe(true);
  /** The host gets the call and the process that made it never hears of it again. */
  const neverAnswer = (method: string, path: RegExp) => {
    let reached = () => {};
    const arrived = new Promise<void>((resolve) => {
      reached = resolve;
    });
    scene.host.after = async (call, response) => {
      if (call.method !== method || !path.test(call.path)) return;
      reached();
      await new Promise((resolve) => response.once('close', resolve));
    };
    return arrived;
  };

  it('are errors when the host was never asked', async () => {
    const { id } = await begun(await running());
    await reconcileUntil(async () => (await state(id)) !== 'creating');
    expect(await snapshotById(scene.db.query, id)).toMatchObject({
      state: 'error',
      last_error: expect.stringContaining('interrupted'),
    });
  });

  it('are finished when the host has taken them', async () => {
    const environment = await running();
    const row = await begun(environment);
    const arrived = neverAnswer('PUT', /\/snapshots\//);
    const taking = first.snapshots.take(row);
    await arrived;
    await first.snapshots[Symbol.asyncDispose]();
    await expect(taking.ready).rejects.toMatchObject({ code: 'unavailable' });
    expect(await state(row.id)).toBe('creating');
    scene.host.after = () => {};
    await reconcileUntil(async () => (await state(row.id)) === 'ready');
    expect(scene.host.snapshots.taken.get(row.id)).toBe(1);
    expect((await snapshotById(scene.db.query, row.id))?.digest).toMatch(/^[0-9a-f]{64}$/);
  });

  it('are finished when they were being flushed', async () => {
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    scene.host.snapshots.flushing = () => held;
    const row = await begun(await running());
    const taking = first.snapshots.take(row);
    await taking.usable;
    await first.snapshots[Symbol.asyncDispose]();
    await expect(taking.ready).rejects.toBeDefined();
    release();
    await reconcileUntil(async () => (await state(row.id)) === 'ready');
  });

  it('wait for a host that cannot be reached', async () => {
    const row = await begun(await running());
    await scene.host.stop();
    await expect(first.snapshots.take(row).ready).rejects.toMatchObject({
      code: 'unavailable',
      details: { snapshot_id: row.id },
    });
    await second.reconcile();
    expect(await state(row.id)).toBe('creating');
    await scene.host.listen();
    await reconcileUntil(async () => (await state(row.id)) === 'error');
  });

  it('are taken by one process while another looks on', async () => {
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    scene.host.snapshots.flushing = () => held;
    const row = await begun(await running());
    const taking = first.snapshots.take(row);
    await taking.usable;
    await new Promise((resolve) => setTimeout(resolve, 700)); // two leases long
    await second.reconcile();
    expect(await state(row.id)).toBe('creating');
    release();
    expect((await taking.ready).state).toBe('ready');
  });

  it('go on being deleted', async () => {
    const { id } = await ready(await running());
    await scene.host.stop();
    await expect(first.snapshots.delete(id, { force: false })).rejects.toMatchObject({ code: 'unavailable' });
    expect(await state(id)).toBe('deleting');
    await scene.host.listen();
    await reconcileUntil(async () => (await state(id)) === undefined);
    expect(scene.host.snapshots.kept.size).toBe(0);
  });

  describe('while restoring', () => {
    const restored = async () => {
      const environment = await running();
      const snapshot = await ready(environment);
      return { uid: environment.uid, snapshotId: snapshot.id };
    };
    const restore = (id: string) => first.snapshots.restore({ tenantId: 'default', id, fallback: undefined });

    it('are finished when the host has done it, and it is done once', async () => {
      const { uid, snapshotId } = await restored();
      const arrived = neverAnswer('POST', /\/restore$/);
      const waiting = restore(snapshotId);
      waiting.catch(() => {});
      await arrived;
      await first.snapshots[Symbol.asyncDispose]();
      await expect(waiting).rejects.toMatchObject({ code: 'unavailable' });
      expect(await scene.state(uid)).toBe('resuming');
      expect(await state(snapshotId)).toBe('restoring');
      scene.host.after = () => {};
      await reconcileUntil(async () => (await scene.state(uid)) === 'running');
      expect(await state(snapshotId)).toBe('ready');
      expect(scene.host.restored).toBe(1);
      expect(await environmentByUid(scene.db.query, uid)).toMatchObject({
        restore_id: null,
        restore_snapshot_id: null,
      });
    });

    it('are done again when their host was cut off in the middle', async () => {
      const { uid, snapshotId } = await restored();
      let reached = () => {};
      const arrived = new Promise<void>((resolve) => {
        reached = resolve;
      });
      scene.host.before = async ({ path }) => {
        if (!path.endsWith('/restore')) return;
        scene.host.killVm(path.split('/')[3] ?? '', 'its restore was cut off');
        reached();
        await new Promise(() => {});
      };
      restore(snapshotId).catch(() => {});
      await arrived;
      await first.snapshots[Symbol.asyncDispose]();
      scene.host.before = () => {};
      await reconcileUntil(async () => (await scene.state(uid)) !== 'resuming');
      expect(await scene.state(uid)).toBe('running');
      expect(await state(snapshotId)).toBe('ready');
      expect(scene.host.restored).toBe(1);
    });

    it('end at once, as what they are, when the environment is destroyed', async () => {
      const { uid, snapshotId } = await restored();
      scene.host.before = async ({ path }) => {
        if (!path.endsWith('/restore')) return;
        await scene.db.transaction((tx) => first.environments.beginDestroy(tx, uid));
        throw new AppError('conflict', 'the VM was destroyed');
      };
      await expect(restore(snapshotId)).rejects.toMatchObject({
        code: 'conflict',
        message: expect.stringContaining('was destroyed while it was restored'),
      });
      expect(await state(snapshotId)).toBe('ready');
    });

    it('are undone when the host will not', async () => {
      const { uid, snapshotId } = await restored();
      await scene.host.stop();
      await expect(restore(snapshotId)).rejects.toMatchObject({ code: 'unavailable' });
      expect(await scene.state(uid)).toBe('resuming');
      await scene.host.listen();
      scene.host.before = ({ path }) => {
        if (path.endsWith('/restore')) throw new AppError('unavailable', 'no disk left');
      };
      await reconcileUntil(async () => (await scene.state(uid)) === 'running');
      expect(await state(snapshotId)).toBe('ready');
      expect(scene.host.restored).toBe(0);
    });

    it('end with an environment that is lost', async () => {
      const { uid, snapshotId } = await restored();
      scene.host.before = ({ path }) => {
        if (!path.endsWith('/restore')) return;
        scene.host.killVm(path.split('/')[3] ?? '', 'the old VMM was ended, the new one did not start');
        throw new AppError('unavailable', 'the new one did not start');
      };
      await expect(restore(snapshotId)).rejects.toMatchObject({ code: 'vm_lost' });
      expect(await environmentByUid(scene.db.query, uid)).toMatchObject({
        state: 'failed',
        error: expect.stringContaining('did not start'),
      });
      expect(await state(snapshotId)).toBe('ready');
      scene.host.before = () => {};
      await reconcileUntil(async () => scene.host.vms.size === 0);
    });

    it('are ready again when the environment was destroyed under them', async () => {
      const { uid, snapshotId } = await restored();
      const arrived = neverAnswer('POST', /\/restore$/);
      restore(snapshotId).catch(() => {});
      await arrived;
      await first.snapshots[Symbol.asyncDispose]();
      scene.host.after = () => {};
      await second.environments.destroy(uid);
      await reconcileUntil(async () => (await state(snapshotId)) === 'ready');
    });
  });

  it('of a run’s environment do not take it back under the run', async () => {
    const { id, environment_uid } = await ready(await running());
    await sql`update environments set run_id = 'run-x' where uid = ${environment_uid}`.execute(scene.db.query);
    await expect(first.snapshots.restore({ tenantId: 'default', id, fallback: undefined })).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringContaining('belongs to run run-x'),
    });
    expect(await state(id)).toBe('ready');
  });

  it('that forks were admitted with: all of those are given up', async () => {
    const source = await running();
    const row = await begun(source);
    const forks = await scene.db.transaction(async (tx) => {
      const made = [];
      for (const name of ['fork-a', 'fork-b'])
        made.push(
          await first.environments.admit(tx, {
            tenantId: 'default',
            taskId: name,
            spec: {},
            env: {},
            seed: seedFrom(row),
          }),
        );
      return made.map((each) => (each.kind === 'admitted' ? each.environment.uid : ''));
    });
    await reconcileUntil(async () => (await Promise.all(forks.map(scene.state))).every((each) => each === 'failed'));
    await reconcileUntil(async () => (await state(row.id)) === 'error');
    expect(scene.host.vms.size).toBe(1);
  });

  it('go when their time is over, but not while an environment starts from them', async () => {
    const source = await running();
    const [kept, old] = [await ready(source), await ready(source)];
    await sql`update snapshots set retention_until = now() - interval '1 second' where id = ${old.id}`.execute(
      scene.db.query,
    );
    const { uid } = await scene.admit('seeded', first.environments, { seed: seedFrom(old) });
    await second.reconcile();
    expect(await state(old.id)).toBe('ready');
    expect((await first.environments.start(uid)).state).toBe('running');
    await reconcileUntil(async () => (await state(old.id)) === undefined);
    expect(await state(kept.id)).toBe('ready');
    expect(scene.host.snapshots.kept.size).toBe(1);
    expect(await scene.state(uid)).toBe('running');
  });

  it('of a host that is gone are errors, except those that are in the object store', async () => {
    const environment = await running();
    const [lost, exported] = [await ready(environment), await ready(environment)];
    const chunks = await scene.host.snapshots.chunks(exported.id);
    await scene.host.snapshots.export(exported.id, {
      chunk_prefix: 'chunks',
      manifest_key: 'manifests/m',
      missing: chunks.chunks.map(({ sha256 }) => sha256),
    });
    await sql`update snapshots set manifest_key = 'manifests/m', export_state = 'done' where id = ${exported.id}`.execute(
      scene.db.query,
    );
    await first.environments.destroy(environment.uid);
    const hosts = new HostService(scene.db, testSealer);
    await hosts.remove('host-1');
    expect(await snapshotById(scene.db.query, lost.id)).toMatchObject({ state: 'error', last_error: 'host lost' });
    expect(await snapshotById(scene.db.query, exported.id)).toMatchObject({ state: 'ready', host_id: null });
    await using other = await TestHost.start({ objectStore: scene.objectStore });
    await hosts.register({ id: 'host-2', url: other.url, token: other.token });
    const create = (seed_snapshot_id: string) =>
      first.environments.create({
        tenantId: 'default',
        request: { task_id: `from-${seed_snapshot_id}`, seed_snapshot_id },
        idempotent: undefined,
        signal: new AbortController().signal,
      });
    await expect(create(lost.id)).rejects.toMatchObject({ code: 'conflict', message: /host lost/ });
    expect((await create(exported.id)).environment).toMatchObject({ state: 'running', host_id: 'host-2' });
    await first.snapshots.delete(lost.id, { force: true });
    expect(await state(lost.id)).toBeUndefined();
  });

  it('are started on their own host while they are not exported, and the refusal says so', async () => {
    const { id } = await ready(await running());
    await using other = await TestHost.start();
    const hosts = new HostService(scene.db, testSealer);
    await hosts.register({ id: 'host-2', url: other.url, token: other.token });
    const create = (task_id: string) =>
      first.environments.create({
        tenantId: 'default',
        request: { task_id, seed_snapshot_id: id },
        idempotent: undefined,
        signal: new AbortController().signal,
      });
    // More is free on the other one.
    expect((await create('a')).environment.host_id).toBe('host-1');
    await hosts.setState('host-1', 'cordoned');
    await expect(create('b')).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringMatching(/is not exported, so only its host can start it: host "host-1" is cordoned/),
    });
  });

  it('missing on their host are errors after a grace; what nobody knows there goes, another cluster’s stays', async () => {
    const environment = await running();
    const { id } = await ready(environment);
    await scene.host.snapshots.delete(id);
    const vm = [...scene.host.vms.values()][0];
    if (vm === undefined) throw new Error('no VM');
    const body = { include_memory: true };
    await scene.host.snapshots.take('snap-orphan', vm.vm, vm.root, { ...body, tag: TAG });
    await scene.host.snapshots.take('snap-foreign', vm.vm, vm.root, { ...body, tag: 'another-cluster' });
    await second.reconcile();
    expect(await state(id)).toBe('ready');
    await reconcileUntil(async () => (await state(id)) === 'error');
    await reconcileUntil(async () => !scene.host.snapshots.kept.has('snap-orphan'));
    expect([...scene.host.snapshots.kept.keys()]).toEqual(['snap-foreign']);
    expect(await snapshotById(scene.db.query, id)).toMatchObject({ last_error: 'missing from its host' });
  });
});

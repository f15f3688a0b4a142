/** Crash points: an orchestrator ends at any step of create and destroy, and another one finishes or undoes what it began. */

import { sql } from 'kysely';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { inMs } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { engines } from '../db/test-database.ts';
import { rejectionError } from '../environments/admission.ts';
import { environmentByUid, transition } from '../environments/environment-store.ts';
import { HostService } from '../hosts/host-service.ts';
import { TestHost } from '../hosts/test-host.ts';
import { testSealer } from '../secrets/test-sealer.ts';
import { openScene, type Scene, TAG } from './test-replicas.ts';

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

describe.each(engines)('reconciling on %s', (engine) => {
  let scene: Scene;
  beforeEach(async () => {
    scene = await openScene(engine);
  }, 60_000);
  afterEach(() => scene[Symbol.asyncDispose]());

  it('gives up a start whose process died before the VM was asked for', async () => {
    const { uid } = await scene.admit('a');
    const replica = scene.replica();
    await replica.reconcile();
    expect(await scene.state(uid)).toBe('provisioning'); // its lease still runs
    await pause(350);
    await replica.reconcile();
    expect(await environmentByUid(scene.db.query, uid)).toMatchObject({
      state: 'failed',
      error: 'its start was interrupted',
    });
  });

  it('gives up a start whose process died after the VM was made, and destroys the VM', async () => {
    const dying = scene.replica();
    const row = await scene.admit('a', dying.environments);
    // As if the process ended between the host's answer and the commit.
    await scene.host[Symbol.asyncDispose]().then(() => scene.host.listen());
    const client = await dying.hosts.client('host-1');
    const shape = { cpus: row.cpus, ram_mb: row.ram_mb, storage_gb: row.storage_gb };
    await client.createVm(row.vm_id, { image: 'base', shape, tag: TAG, hostname: 'x' });
    await pause(350);
    await scene.replica().reconcile();
    expect(await scene.state(row.uid)).toBe('failed');
    expect(scene.host.vms.size).toBe(0);
  });

  it('lets another process go on with a start, making one VM', async () => {
    const { uid } = await scene.admit('a');
    await pause(350);
    const [first, second] = [scene.replica(), scene.replica()];
    const rows = await Promise.all([first.environments.start(uid), second.environments.start(uid)]);
    expect(rows.map(({ state }) => state)).toEqual(['running', 'running']);
    expect(scene.host.createdVms).toBe(1);
  });

  it('does not give up a start that is slow but alive', async () => {
    const replica = scene.replica();
    const { uid } = await scene.admit('a', replica.environments);
    scene.host.before = async ({ method }) => {
      if (method === 'PUT') await pause(1_000);
    };
    const starting = replica.environments.start(uid);
    const other = scene.replica();
    for (let round = 0; round < 6; round += 1) {
      await pause(150);
      await other.reconcile();
    }
    expect((await starting).state).toBe('running');
  });

  it('finishes a destruction whose process died after it was committed', async () => {
    const replica = scene.replica();
    const { uid } = await scene.admit('a', replica.environments);
    const row = await replica.environments.start(uid);
    await scene.db.transaction((tx) => transition(tx, row, 'destroying'));
    expect(scene.host.vms.size).toBe(1);
    await scene.replica().reconcile();
    expect(await scene.state(uid)).toBe('destroyed');
    expect(scene.host.vms.size).toBe(0);
  });

  it('finishes a destruction once its host can be reached again', async () => {
    const replica = scene.replica();
    const { uid } = await scene.admit('a', replica.environments);
    await replica.environments.start(uid);
    await scene.host.stop();
    await expect(replica.environments.destroy(uid)).rejects.toMatchObject({ code: 'unavailable' });
    await replica.reconcile();
    expect(await scene.state(uid)).toBe('destroying');
    await scene.host.listen();
    await replica.reconcile();
    expect(await scene.state(uid)).toBe('destroyed');
    expect(scene.host.vms.size).toBe(0);
  });

  it('tells truly that a VM died or vanished, and no sooner than it must', async () => {
    const replica = scene.replica();
    const started = [];
    for (const task of ['dies', 'vanishes', 'lives']) {
      const { uid } = await scene.admit(task, replica.environments);
      started.push(await replica.environments.start(uid));
    }
    const [dies, vanishes, lives] = started as [EnvironmentRow, EnvironmentRow, EnvironmentRow]; // three were started
    scene.host.killVm(dies.vm_id, 'killed by the test');
    scene.host.vms.delete(vanishes.vm_id);
    await replica.reconcile();
    expect(await environmentByUid(scene.db.query, dies.uid)).toMatchObject({
      state: 'failed',
      error: 'killed by the test',
    });
    expect(await scene.state(vanishes.uid)).toBe('running');
    await pause(250);
    await replica.reconcile();
    expect(await environmentByUid(scene.db.query, vanishes.uid)).toMatchObject({
      state: 'failed',
      error: 'vm missing from its host',
    });
    expect(await scene.state(lives.uid)).toBe('running');
    expect([...scene.host.vms.keys()]).toEqual([lives.vm_id]);
  });

  it('tells at once that a VM vanished whose host is in this process and was just started', async () => {
    const patient = scene.replica();
    const { uid, vm_id } = await scene.admit('a', patient.environments);
    await patient.environments.start(uid);
    scene.host.vms.delete(vm_id);
    await patient.reconcile();
    expect(await scene.state(uid)).toBe('running'); // it may be late
    await patient.reconciler[Symbol.asyncDispose]();
    await scene.replica({}, undefined, 'host-1').reconcile();
    expect(await environmentByUid(scene.db.query, uid)).toMatchObject({
      state: 'failed',
      error: 'vm missing from its host',
    });
  });

  it('destroys a VM of ours that nothing owns after a grace, and never another cluster’s', async () => {
    const replica = scene.replica();
    const client = await replica.hosts.client('host-1');
    const shape = { cpus: 1, ram_mb: 512, storage_gb: 2 };
    await client.createVm('orphan', { image: 'base', shape, tag: TAG, hostname: 'x' });
    await client.createVm('foreign', { image: 'base', shape, tag: 'another-cluster', hostname: 'x' });
    await replica.reconcile();
    expect(scene.host.vms.size).toBe(2);
    await pause(350);
    await replica.reconcile();
    expect([...scene.host.vms.keys()]).toEqual(['foreign']);
  });

  it('destroys at once the VM of an environment that is known to be gone', async () => {
    const replica = scene.replica();
    const { uid, vm_id } = await scene.admit('a', replica.environments);
    await replica.environments.start(uid);
    await replica.environments.destroy(uid);
    const client = await replica.hosts.client('host-1');
    await client.createVm(vm_id, {
      image: 'base',
      shape: { cpus: 1, ram_mb: 512, storage_gb: 2 },
      tag: TAG,
      hostname: 'x',
    });
    await replica.reconcile();
    expect(scene.host.vms.size).toBe(0);
  });

  it('ends what has outlived its ceiling or was idle for too long, saying which', async () => {
    const replica = scene.replica();
    const admit = async (taskId: string, spec: object) => {
      const admitted = await scene.db.transaction((tx) =>
        replica.environments.admit(tx, { tenantId: 'default', taskId, spec, env: {} }),
      );
      if (admitted.kind !== 'admitted') throw rejectionError(admitted);
      return replica.environments.start(admitted.environment.uid);
    };
    const old = await admit('old', { max_runtime_seconds: 100 });
    const idle = await admit('idle', { idle_timeout_seconds: 60 });
    const fresh = await admit('fresh', { max_runtime_seconds: 100, idle_timeout_seconds: 60 });
    await replica.reconcile();
    expect(await scene.state(old.uid)).toBe('running');
    await scene.db.query
      .updateTable('environments')
      .set({ expires_at: inMs(-1) })
      .where('uid', '=', old.uid)
      .execute();
    await scene.db.query
      .updateTable('environments')
      .set({ last_activity_at: inMs(-61_000) })
      .where('uid', '=', idle.uid)
      .execute();
    await replica.reconcile();
    expect(await environmentByUid(scene.db.query, old.uid)).toMatchObject({
      state: 'destroyed',
      error: expect.stringContaining('max_runtime_seconds'),
    });
    expect(await environmentByUid(scene.db.query, idle.uid)).toMatchObject({
      state: 'destroyed',
      error: 'idle_timeout_seconds: no exec or attach for 60 s',
    });
    expect(await scene.state(fresh.uid)).toBe('running');
  });

  it('goes on with the other hosts while one does not answer', async () => {
    await using silent = await TestHost.start();
    await new HostService(scene.db, testSealer).register({ id: 'host-0', url: silent.url, token: silent.token });
    silent.before = () => new Promise(() => {});
    const replica = scene.replica();
    const { uid } = await scene.admit('a', replica.environments);
    await scene.db.query.updateTable('environments').set({ host_id: 'host-1' }).where('uid', '=', uid).execute();
    const row = await replica.environments.start(uid);
    await scene.db.transaction((tx) => transition(tx, row, 'destroying'));
    await replica.reconcile();
    expect(await scene.state(uid)).toBe('destroyed');
  });

  it('forgets what has been gone for longer than it is kept, with its events', async () => {
    const replica = scene.replica({ keepGoneMs: 3_600_000 });
    const { uid } = await scene.admit('a', replica.environments);
    await replica.environments.start(uid);
    await replica.environments.destroy(uid);
    await replica.reconcile();
    expect(await scene.state(uid)).toBe('destroyed');
    await sql`update environments set gone_at = gone_at - interval '2 hours'`.execute(scene.db.query);
    await sql`update events set at = at - interval '2 hours'`.execute(scene.db.query);
    // Its execs can still be read.
    await sql`update environments set archive_key = 'execs/x'`.execute(scene.db.query);
    await replica.reconcile();
    expect(await scene.state(uid)).toBe('destroyed');
    await sql`update environments set archive_key = null`.execute(scene.db.query);
    await replica.reconcile();
    expect(await scene.state(uid)).toBeUndefined();
    const { rows } = await sql`select 1 from events where subject_id = ${uid}`.execute(scene.db.query);
    expect(rows).toEqual([]);
  });

  it('is done by one process at a time, and by another one when that is gone', async () => {
    const [first, second] = [scene.replica(), scene.replica()];
    expect(await first.reconcile()).toBe(true);
    expect(await second.reconcile()).toBe(false);
    expect(await first.reconcile()).toBe(true);
    await first[Symbol.asyncDispose]();
    expect(await second.reconcile()).toBe(true);
    await pause(600); // its lease runs out without a release
    const third = scene.replica();
    expect(await third.reconcile()).toBe(true);
    const { rows } = await sql<{ fence: number }>`select fence from leases where name = 'reconciler'`.execute(
      scene.db.query,
    );
    expect(rows[0]?.fence).toBe(3);
  });

  it('is refused by a host to a leader that slept through the end of its lease', async () => {
    const [former, next] = [scene.replica(), scene.replica()];
    const client = await former.hosts.client('host-1');
    const shape = { cpus: 1, ram_mb: 512, storage_gb: 2 };
    await client.createVm('orphan', { image: 'base', shape, tag: TAG, hostname: 'x' });
    await former.reconcile();
    await pause(350);
    // Its order to destroy is on its way, while another process takes over and is heard of by the host.
    let isHeld = false;
    scene.host.arriving = async ({ method }) => {
      if (method !== 'DELETE' || isHeld) return;
      isHeld = true;
      await pause(600);
      expect(await next.reconcile()).toBe(true);
    };
    await former.reconcile();
    expect(isHeld).toBe(true);
    expect([...scene.host.vms.keys()]).toEqual(['orphan']);
  });

  it('overtakes the fence that a host has seen when the database is older than that', async () => {
    const [leader, other] = [scene.replica(), scene.replica()];
    await leader.reconcile();
    scene.host.fences.set(TAG, 1_000);
    await leader.reconcile();
    await leader.reconcile();
    expect(scene.host.fences.get(TAG)).toBe(1_001);
    await leader[Symbol.asyncDispose]();
    await other.reconcile();
    expect(scene.host.fences.get(TAG)).toBe(1_002);
  });
});

describe('transitions on PostgreSQL', () => {
  it('are won by one of many, and each winner leaves one event', async () => {
    await using scene = await openScene('postgres');
    const replica = scene.replica();
    const { uid } = await scene.admit('a', replica.environments);
    const row = await replica.environments.start(uid);
    const results = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        scene.test.db.transaction((tx) =>
          transition(tx, row, index % 2 === 0 ? 'destroying' : 'failed', `by ${index}`),
        ),
      ),
    );
    const winners = results.filter((result) => result !== undefined);
    expect(winners.length).toBe(1);
    expect(winners[0]?.version).toBe(row.version + 1);
    const { rows } = await sql<{ state: string }>`
      select data ->> 'state' as state from events where subject_id = ${uid} and kind = 'state' order by id`.execute(
      scene.db.query,
    );
    expect(rows.map(({ state }) => state)).toEqual(['provisioning', 'running', winners[0]?.state]);
  });

  it('to a state that may not follow are refused', async () => {
    await using scene = await openScene('postgres');
    const row = await scene.admit('a');
    await expect(scene.db.transaction((tx) => transition(tx, row, 'paused'))).rejects.toThrow('cannot become');
  });
});

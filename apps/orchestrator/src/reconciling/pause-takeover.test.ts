/** Pause and resume when the process that drives them, or their host, is gone half-way; what the reconciler pauses and puts right by itself. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { inMs } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { engines } from '../db/test-database.ts';
import { environmentByUid, transition, usedByHost } from '../environments/environment-store.ts';
import { idle } from './due.ts';
import { openScene, type Replica, type Scene } from './test-replicas.ts';

const GONE = { owner: 'a process that is gone', ms: -1 };
const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

describe.each(engines)('pause and resume on %s', (engine) => {
  let scene: Scene;
  let replica: Replica;
  beforeEach(async () => {
    scene = await openScene(engine);
    replica = scene.replica();
  }, 60_000);
  afterEach(() => scene[Symbol.asyncDispose]());

  const running = async (task: string, more = {}) => {
    const { uid } = await scene.admit(task, replica.environments, more);
    return replica.environments.start(uid);
  };
  const read = async (uid: string): Promise<EnvironmentRow> => {
    const row = await environmentByUid(scene.db.query, uid);
    if (row === undefined) throw new Error(`no environment ${uid}`);
    return row;
  };
  const become = async (row: EnvironmentRow, state: 'pausing' | 'resuming', lease = GONE) => {
    const changed = await scene.db.transaction((tx) => transition(tx, row, state, { lease }));
    if (changed === undefined) throw new Error('it changed meanwhile');
    return changed;
  };
  const onHost = ({ vm_id }: EnvironmentRow) => scene.host.vms.get(vm_id)?.vm.state;
  const hostDoes = async (row: EnvironmentRow, what: 'pauseVm' | 'resumeVm') => {
    const client = await replica.hosts.client('host-1');
    await client[what](row.vm_id);
  };
  /** A host that has just come back may miss a call or two on a busy machine. */
  const reconcileUntil = (row: EnvironmentRow, state: string) =>
    expect
      .poll(
        async () => {
          await replica.reconcile();
          return scene.state(row.uid);
        },
        { timeout: 20_000 },
      )
      .toBe(state);
  const used = async () => (await usedByHost(scene.db.query)).get('host-1');
  const countCalls = (suffix: string) => {
    const counted = { calls: 0 };
    scene.host.before = ({ path }) => void (path.endsWith(suffix) && counted.calls++);
    return counted;
  };
  const isIdleSince = (uid: string, ms: number) =>
    scene.db.query
      .updateTable('environments')
      .set({ last_activity_at: inMs(-ms) })
      .where('uid', '=', uid)
      .execute();

  it.each(['before its host was asked', 'after its host had done it'])(
    'are finished by another process when theirs ended %s',
    async (step) => {
      const row = await running('a');
      const other = scene.replica();
      await become(row, 'pausing');
      if (step.startsWith('after')) await hostDoes(row, 'pauseVm');
      await other.reconcile();
      expect(await read(row.uid)).toMatchObject({ state: 'paused', lease_owner: null, paused_at: expect.any(Date) });
      expect(onHost(row)).toBe('paused');
      await become(await read(row.uid), 'resuming');
      if (step.startsWith('after')) await hostDoes(row, 'resumeVm');
      await other.reconcile();
      expect(await read(row.uid)).toMatchObject({ state: 'running', lease_owner: null, paused_at: null });
      expect(onHost(row)).toBe('running');
    },
  );

  it('are left to whoever drives them, and finished by the next caller when that is gone', async () => {
    const row = await running('a');
    const pausing = await become(row, 'pausing', { owner: 'a process that lives', ms: 60_000 });
    const counted = countCalls('/pause');
    await replica.reconcile();
    expect(counted.calls).toBe(0);
    expect(await read(row.uid)).toEqual(pausing);
    await scene.db.query
      .updateTable('environments')
      .set({ lease_until: inMs(-1) })
      .where('uid', '=', row.uid)
      .execute();
    expect(await replica.environments.pause(row.uid)).toMatchObject({ state: 'paused' });
    expect(counted.calls).toBe(1);
  });

  it('go on elsewhere at once when their process stops', async () => {
    const row = await running('a');
    let reached = false;
    scene.host.before = async ({ path }, response) => {
      if (!path.endsWith('/pause')) return;
      reached = true;
      await new Promise((resolve) => response.once('close', resolve));
    };
    const cut = replica.environments.pause(row.uid);
    const failure = expect(cut).rejects.toMatchObject({ code: 'unavailable' });
    await expect.poll(() => reached).toBe(true);
    await replica.environments[Symbol.asyncDispose]();
    await failure;
    scene.host.before = () => {};
    const other = scene.replica();
    await other.reconcile();
    expect(await scene.state(row.uid)).toBe('paused');
  });

  it('stay where they are, holding everything, while their host cannot be reached, and are finished once it can', async () => {
    const row = await running('a');
    await scene.host.stop();
    await expect(replica.environments.pause(row.uid)).rejects.toMatchObject({ code: 'unavailable', status: 503 });
    await replica.reconcile();
    expect(await scene.state(row.uid)).toBe('pausing');
    expect(await used()).toMatchObject({ cpus: 1, vm_count: 1 });
    await scene.host.listen();
    await reconcileUntil(row, 'paused');
    expect(await used()).toEqual({ cpus: 0, ram_mb: 0, storage_gb: 2, vm_count: 0, gpus: [] });
    await scene.host.stop();
    await expect(replica.environments.resume(row.uid)).rejects.toMatchObject({ code: 'unavailable' });
    expect(await scene.state(row.uid)).toBe('resuming');
    expect(await used()).toMatchObject({ cpus: 1, ram_mb: 512, vm_count: 1 });
    await scene.host.listen();
    await reconcileUntil(row, 'running');
  });

  it('are undone by another process when the memory turns out to be damaged', async () => {
    const row = await running('a');
    await replica.environments.pause(row.uid);
    await become(await read(row.uid), 'resuming');
    scene.host.damaged.add(row.vm_id);
    await replica.reconcile();
    expect(await read(row.uid)).toMatchObject({ state: 'paused', error: expect.stringContaining('digest') });
    expect(await used()).toMatchObject({ cpus: 0, vm_count: 0 });
  });

  it('end as failed when the VM died or vanished, in every state', async () => {
    const [died, vanished] = [await running('died'), await running('vanished')];
    await replica.environments.pause(died.uid);
    scene.host.killVm(died.vm_id, 'killed by the test');
    await become(vanished, 'pausing');
    scene.host.vms.delete(vanished.vm_id);
    await replica.reconcile();
    expect(await read(died.uid)).toMatchObject({ state: 'failed', error: 'killed by the test' });
    expect(await scene.state(vanished.uid)).toBe('pausing');
    await wait(250);
    await replica.reconcile();
    expect(await read(vanished.uid)).toMatchObject({ state: 'failed', error: 'vm missing from its host' });
  });

  it('tell the truth of one that another process destroyed meanwhile', async () => {
    const row = await running('a');
    const other = scene.replica();
    scene.host.before = async ({ path }) => {
      if (path.endsWith('/pause')) await other.environments.destroy(row.uid);
    };
    await expect(replica.environments.pause(row.uid)).rejects.toMatchObject({ code: 'not_found' });
    expect(await scene.state(row.uid)).toBe('destroyed');
    expect(scene.host.vms.size).toBe(0);
  });

  it('are put right when a host has a VM otherwise than its row', async () => {
    const [runs, stands] = [await running('runs'), await running('stands')];
    await replica.environments.pause(stands.uid);
    await hostDoes(runs, 'pauseVm');
    await hostDoes(stands, 'resumeVm');
    await replica.reconcile();
    expect([await scene.state(runs.uid), onHost(runs)]).toEqual(['running', 'running']);
    expect([await scene.state(stands.uid), onHost(stands)]).toEqual(['paused', 'paused']);
  });

  it('pause what is idle when that was asked, and not what was used meanwhile', async () => {
    const lifetime = { idle_action: 'pause' } as const;
    const spec = { idle_timeout_seconds: 60, max_runtime_seconds: 3_600 };
    const rests = await running('rests', { spec, lifetime });
    const works = await running('works', { spec, lifetime });
    const plain = await running('plain', { lifetime });
    for (const { uid } of [rests, works, plain]) await isIdleSince(uid, 61_000);
    await replica.environments.ready(await read(works.uid), new AbortController().signal);
    expect(await replica.environments.pause(works.uid, { onlyIfIdle: true })).toMatchObject({ state: 'running' });
    await replica.reconcile();
    expect(await scene.state(rests.uid)).toBe('paused');
    expect(await scene.state(works.uid)).toBe('running');
    expect(await scene.state(plain.uid)).toBe('running');
    await replica.reconcile();
    expect(await scene.state(rests.uid)).toBe('paused');
    // Its idle clock starts anew, its lifetime does not.
    await replica.environments.resume(rests.uid);
    await replica.reconcile();
    expect(await scene.state(rests.uid)).toBe('running');
    expect((await read(rests.uid)).expires_at).toEqual(rests.expires_at);
  });

  it('end with the lifetime, paused or not', async () => {
    const row = await running('a', { spec: { max_runtime_seconds: 3_600 } });
    await replica.environments.pause(row.uid);
    await scene.db.query
      .updateTable('environments')
      .set({ expires_at: inMs(-1) })
      .where('uid', '=', row.uid)
      .execute();
    await replica.reconcile();
    expect(await read(row.uid)).toMatchObject({
      state: 'destroyed',
      error: expect.stringContaining('max_runtime_seconds'),
    });
    expect(scene.host.vms.size).toBe(0);
  });

  it('never touch the environment of a run', async () => {
    const row = await running('a', { spec: { idle_timeout_seconds: 60 }, lifetime: { idle_action: 'pause' } });
    await isIdleSince(row.uid, 61_000);
    expect(await idle(scene.db.query)).toEqual([{ uid: row.uid }]);
    await scene.db.query.updateTable('environments').set({ run_id: 'run-1' }).where('uid', '=', row.uid).execute();
    expect(await idle(scene.db.query)).toEqual([]);
    await expect(replica.environments.pause(row.uid)).rejects.toMatchObject({ code: 'conflict' });
    expect(await scene.state(row.uid)).toBe('running');
  });
});

describe('two replicas', () => {
  it('share one pause and one resume, and every caller of either succeeds', async () => {
    await using scene = await openScene('postgres');
    const replicas = [scene.replica(), scene.replica()] as const;
    const { uid } = await scene.admit('a', replicas[0].environments);
    await replicas[0].environments.start(uid);
    for (const [verb, state] of [
      ['pause', 'paused'],
      ['resume', 'running'],
    ] as const) {
      let calls = 0;
      scene.host.before = async ({ path }) => {
        if (!path.endsWith(`/${verb}`)) return;
        calls += 1;
        await wait(100);
      };
      const all = Array.from({ length: 10 }, (_, index) => replicas[index % 2 === 0 ? 0 : 1].environments[verb](uid));
      for (const row of await Promise.all(all)) expect(row).toMatchObject({ uid, state });
      expect(calls).toBe(1);
    }
  });

  it('never admit more than a host has, whatever is paused, resumed and created at once', async () => {
    await using scene = await openScene('postgres', { capacity: { cpus: 3 } });
    const replicas = [scene.replica(), scene.replica()] as const;
    const isPutOff = (error: unknown) => ({ error });
    const all: string[] = [];
    for (let round = 0; round < 6; round += 1) {
      const works = replicas.flatMap(({ environments }, index) => [
        ...all.map((uid) => environments.resume(uid).catch(isPutOff)),
        ...all.slice(index, index + 2).map((uid) => environments.pause(uid).catch(isPutOff)),
        scene
          .admit(`r${round}-${index}`, environments)
          .then(({ uid }) => {
            all.push(uid);
            return environments.start(uid);
          })
          .catch(isPutOff),
      ]);
      await Promise.all(works);
      const used = (await usedByHost(scene.db.query)).get('host-1');
      expect(used?.cpus).toBeLessThanOrEqual(3);
    }
    expect(scene.host.mostRunning).toBeLessThanOrEqual(3);
    const runningOnHost = [...scene.host.vms.values()].filter(({ vm }) => vm.state === 'running').length;
    expect((await usedByHost(scene.db.query)).get('host-1')?.vm_count).toBe(runningOnHost);
  });
});

/** `PATCH`, and what ends by itself: never early, never not at all. */
import { AppError, Environment } from '@fuse/contract';
import { sleep } from '@fuse/runtime';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { inMs } from '../db/db.ts';
import { engines } from '../db/test-database.ts';
import { dueToEnd } from '../reconciling/due.ts';
import { openScene, type Scene } from '../reconciling/test-replicas.ts';
import { touchRunning } from './environment-store.ts';
import { environmentsOn } from './environments-testing.ts';

describe.each(engines)('PATCH of an environment on %s', (engine) => {
  const scene = environmentsOn(engine, 'life');
  const { call, create, newTask } = scene;

  const patch = (id: string, body: unknown) => call('PATCH', `/v1/environments/${id}`, body);

  it('changes what is given and nothing else, and when it was changed', async () => {
    const made = await create({ labels: { team: 'a', kind: 'x' }, spec: { region: '' }, idle_action: 'pause' });
    expect(Date.parse(made.expires_at ?? '') - Date.parse(made.created_at)).toBe(7_200_000);
    expect((await patch(made.id, {})).body).toEqual(made);
    expect((await patch(made.id, { labels: null, expires_in_seconds: null })).body).toEqual(made);

    const changed = await patch(made.id, { expires_in_seconds: 60, labels: { team: 'b' } });
    expect(changed.status).toBe(200);
    const { expires_at = '', updated_at } = Environment.parse(changed.body);
    expect(changed.body).toEqual({ ...made, labels: { team: 'b' }, expires_at, updated_at });
    expect(Date.parse(expires_at)).toBeGreaterThan(Date.parse(made.created_at) + 60_000);
    expect(Date.parse(expires_at)).toBeLessThan(Date.parse(made.created_at) + 600_000);
    expect(Date.parse(updated_at)).toBeGreaterThan(Date.parse(made.updated_at));

    const idle = { idle_timeout_seconds: 90, idle_action: 'destroy', auto_resume: true };
    const checkpoints = { checkpoint_interval_seconds: 3_600, checkpoint_keep: 5 };
    expect((await patch(made.id, { ...idle, ...checkpoints })).body).toMatchObject({
      spec: { idle_timeout_seconds: 90, cpus: 1, image: 'base' },
      idle_action: 'destroy',
      auto_resume: true,
      ...checkpoints,
      labels: { team: 'b' },
      expires_at,
    });
    const cleared = await patch(made.id, { labels: {}, idle_timeout_seconds: 0, checkpoint_interval_seconds: 0 });
    expect(cleared.body).not.toHaveProperty('labels');
    expect(cleared.body).not.toHaveProperty('checkpoint_interval_seconds');
    expect(cleared.body.spec).not.toHaveProperty('idle_timeout_seconds');
    expect((await call('GET', `/v1/environments/${made.id}`)).body).toEqual(cleared.body);
  });

  it('refuses what cannot be', async () => {
    const { id } = await create();
    const refused: [unknown, string | undefined][] = [
      [{ expires_in_seconds: 0 }, 'expires_in_seconds'],
      [{ expires_in_seconds: -1 }, 'expires_in_seconds'],
      [{ expires_in_seconds: 1.5 }, 'expires_in_seconds'],
      [{ expires_in_seconds: '60' }, 'expires_in_seconds'],
      [{ expires_in_seconds: Number.MAX_SAFE_INTEGER }, 'expires_in_seconds'],
      [{ idle_timeout_seconds: 59 }, 'idle_timeout_seconds'],
      [{ idle_timeout_seconds: -60 }, 'idle_timeout_seconds'],
      [{ idle_action: 'explode' }, 'idle_action'],
      [{ auto_resume: 'yes' }, 'auto_resume'],
      [{ checkpoint_interval_seconds: 3 }, 'checkpoint_interval_seconds'],
      [{ checkpoint_keep: 0 }, 'checkpoint_keep'],
      [{ labels: { a: '/' } }, 'labels.a'],
      [[], '(body)'],
      [undefined, undefined],
    ];
    for (const [body, field] of refused) {
      const answer = await patch(id, body);
      expect(answer, JSON.stringify(body)).toMatchObject({
        status: 400,
        body: { error: { code: 'invalid_argument' } },
      });
      expect(answer.body.error.details?.field).toBe(field);
    }
    expect((await patch('fuse-none', { auto_resume: true })).status).toBe(404);
    expect((await patch(id, { expires_in_seconds: 5, new_field: 1 })).status).toBe(200);
  });

  it('is for what lives, whatever it does, and not for what goes', async () => {
    const { id } = await create();
    await call('POST', `/v1/environments/${id}?action=pause`);
    expect((await patch(id, { expires_in_seconds: 100 })).body).toMatchObject({ state: 'paused' });
    let release = () => {};
    const slow = new Promise<void>((resolve) => {
      release = resolve;
    });
    scene.test.host.before = ({ method }) => (method === 'DELETE' ? slow : undefined);
    const destroyed = call('DELETE', `/v1/environments/${id}`);
    await expect.poll(async () => (await call('GET', `/v1/environments/${id}`)).body.state).toBe('destroying');
    expect(await patch(id, { expires_in_seconds: 100 })).toMatchObject({
      status: 409,
      body: { error: { code: 'conflict', details: { state: 'destroying' } } },
    });
    release();
    expect((await destroyed).status).toBe(204);
    expect((await patch(id, { expires_in_seconds: 100 })).status).toBe(404);
  });

  it('does not disturb a start that is under way', async () => {
    let release = () => {};
    const slow = new Promise<void>((resolve) => {
      release = resolve;
    });
    scene.test.host.before = ({ method }) => (method === 'PUT' ? slow : undefined);
    const task_id = newTask();
    const creating = call('POST', '/v1/environments', { task_id });
    await expect.poll(async () => (await patch(`fuse-${task_id}`, { labels: { a: 'b' } })).status).toBe(200);
    release();
    expect(await creating).toMatchObject({ status: 201, body: { state: 'running', labels: { a: 'b' } } });
  });

  it('finds them by their labels', async () => {
    const [a, b] = [await create({ labels: { team: 'a', n: '1' } }), await create({ labels: { team: 'a', n: '2' } })];
    const found = async (query: string) =>
      (await call('GET', `/v1/environments?${query}`)).body.environments.map(({ id }: Environment) => id);
    expect(await found('label=team=a')).toEqual([a.id, b.id]);
    expect(await found('label=team=a&label=n=2')).toEqual([b.id]);
    expect(await found('label=team=b')).toEqual([]);
    expect(await found('label=team=a&state=paused')).toEqual([]);
    for (const query of ['label=team', 'label==a', 'label=a=%00', 'label=a=b%20c'])
      expect(await call('GET', `/v1/environments?${query}`)).toMatchObject({
        status: 400,
        body: { error: { details: { field: 'label' } } },
      });
  });

  it('renews a lifetime or finds it over, and then it ends when it was said to, not before', async () => {
    const made = await Promise.all(Array.from({ length: 8 }, () => create({ spec: { max_runtime_seconds: 1 } })));
    const outcomes = await Promise.all(
      made.map(async ({ id, expires_at = '' }, index) => {
        await sleep(Math.max(0, Date.parse(expires_at) - Date.now() - 120 + index * 30));
        return { id, index, answer: await patch(id, { expires_in_seconds: 2 }) };
      }),
    );
    for (const { id, answer } of outcomes)
      if (answer.status === 200) {
        const until = Date.parse(answer.body.expires_at);
        while (Date.now() < until - 100) {
          const seen = await call('GET', `/v1/environments/${id}`);
          if (Date.now() < until - 50)
            expect(seen, `renewed, and gone early: ${id}`).toMatchObject({ status: 200, body: { state: 'running' } });
          await sleep(50);
        }
      } else expect([404, 409]).toContain(answer.status);
    for (const { id } of outcomes)
      await expect
        .poll(async () => (await call('GET', `/v1/environments/${id}`)).status, { timeout: 20_000 })
        .toBe(404);
  }, 60_000);
});

describe.each(engines)('what is due on %s', (engine) => {
  let scene: Scene;
  let number = 0;
  beforeAll(async () => {
    scene = await openScene(engine);
  }, 60_000);
  afterAll(() => scene[Symbol.asyncDispose]());

  const started = async (spec: object) => {
    const { environments } = scene.replica();
    const { uid } = await scene.admit(`due-${++number}`, environments, { spec });
    await environments.start(uid);
    return { uid, environments };
  };
  const age = (uid: string, columns: 'last_activity_at' | 'expires_at') =>
    scene.db.query
      .updateTable('environments')
      .set({ [columns]: inMs(-100_000) })
      .where('uid', '=', uid)
      .execute();
  const due = async () => (await dueToEnd(scene.db.query)).map(({ uid }) => uid);

  it('does not end when it was used, or may be idle for longer, since it was found', async () => {
    const { uid, environments } = await started({ idle_timeout_seconds: 60 });
    for (const use of [
      () => touchRunning(scene.db.query, uid),
      () => environments.update(uid, { idle_timeout_seconds: 600 }),
      () => environments.update(uid, { idle_action: 'pause' }),
    ]) {
      await environments.update(uid, { idle_timeout_seconds: 60, idle_action: 'destroy' });
      await age(uid, 'last_activity_at');
      expect(await due()).toEqual([uid]);
      await use();
      await environments.endIfDue(uid);
      expect(await scene.state(uid)).toBe('running');
    }
    await environments.update(uid, { idle_timeout_seconds: 60, idle_action: 'destroy' });
    await age(uid, 'last_activity_at');
    await environments.endIfDue(uid);
    expect(await scene.state(uid)).toBe('destroyed');
  });

  it('is not renewed once it is over, and counts from now when it could not become idle before', async () => {
    const { uid, environments } = await started({});
    await age(uid, 'last_activity_at');
    await environments.update(uid, { idle_timeout_seconds: 60 });
    expect(await due()).toEqual([]);
    await age(uid, 'expires_at');
    await expect(environments.update(uid, { expires_in_seconds: 60 })).rejects.toThrow(/its lifetime is over/);
    await expect(environments.update(uid, { labels: {} })).rejects.toThrow(AppError);
    expect(await due()).toEqual([uid]);
    await environments.endIfDue(uid);
    await environments.endIfDue(uid);
    expect(await scene.state(uid)).toBe('destroyed');
  });

  // It takes several connections.
  if (engine === 'postgres')
    it('waits for a renewal that is being written', async () => {
      const { uid, environments } = await started({});
      await age(uid, 'expires_at');
      let commit = () => {};
      const held = new Promise<void>((resolve) => {
        commit = resolve;
      });
      let hasLocked = () => {};
      const locked = new Promise<void>((resolve) => {
        hasLocked = resolve;
      });
      const renewal = scene.db.transaction(async (tx) => {
        await tx
          .updateTable('environments')
          .set({ expires_at: inMs(60_000) })
          .where('uid', '=', uid)
          .execute();
        hasLocked();
        await held;
      });
      await locked;
      expect(await due()).toEqual([uid]);
      const ending = environments.endIfDue(uid);
      await sleep(100);
      commit();
      await Promise.all([renewal, ending]);
      expect(await scene.state(uid)).toBe('running');
      await environments.destroy(uid);
    });
});
